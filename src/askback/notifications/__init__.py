"""Messages about runs: which are due, to whom, and their delivery with retries.

Does not know who executes runs. Start with `outbox`, which sends what is due; `digests` lists open questions at certain times,
`notice` is what a message says, and `channels` has one module for each kind of receiver.
"""
