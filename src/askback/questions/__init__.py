"""A question as data: how it is found in assistant messages and tool calls, what people read of it, and what answers mean.

Does not know who asks and who shows it. Start with `finding`, which reads a question, and `reading`, which reads all that
a turn said. `view` is what every face shows, `forms` the form for clients that show one, `typed_answers` the meaning of a
typed line.
"""
