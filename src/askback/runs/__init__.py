"""Everything a caller can do with runs: submit, reply, cancel, delete, read, follow.

Does not know how a turn is executed: the worker does that, and the store is between the two. Start with `service`, the
one entry point of the command line, HTTP and the page; `submission` creates runs, `continuation` copies from others.
"""
