"""Child processes and the files of a run: the only I/O of a turn. Does not know engines, states of runs or the store."""
