"""Files that belong to no machine: uploads, skill packages, artifacts, and the homes of runs between their turns.

Owns the two stores, a folder and an object store, and the id by which a database knows its store. Does not know what a file
is for. Every call blocks, in a time limit: the event loop waits for it in a thread. Start with `base`.
"""
