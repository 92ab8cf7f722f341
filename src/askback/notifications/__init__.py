"""Messages about runs: which are due, to whom, in which format, and their delivery with retries.

Does not know who executes runs. Start with `delivery`; `messages` has the formats, `telegram` the bot.
"""
