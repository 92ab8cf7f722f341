"""The Telegram bot: questions as messages in chats, and answers from them."""
