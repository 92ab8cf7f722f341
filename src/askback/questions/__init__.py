"""A question as data: how it is found in assistant messages and tool calls, its form, and what a typed answer means.

Does not know who asks and who shows it. Start with `reading`.
"""
