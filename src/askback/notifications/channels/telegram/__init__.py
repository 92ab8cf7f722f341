"""The Telegram bot: questions as messages in chats, and answers from them.

Every server can send (`channel`), and one server polls for answers (`bot`). What a tap or a message means is decided in
`answering`, which changes runs through the service alone. `messages` is pure, `texts` has every word, and `api` is the Bot API.
"""
