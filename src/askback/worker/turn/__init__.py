"""One turn of a run, from its files to the signal that ends it.

Owns the steps of a turn and the process that executes it; must not know slots, the queue or other runs. Start with
`execute`, which has the steps in their order: `files` and `prepare` come before the process, `process` starts it, `instruct` and
`observe` converse with it, `verdict` reads the outcome, and `recording` and `files` save what the turn left.
"""
