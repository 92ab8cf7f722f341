"""Child processes and the files of a run: the only I/O of a turn. Knows nothing of engines, runs' states or the store."""
