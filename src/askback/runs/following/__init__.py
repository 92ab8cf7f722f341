"""Following changes: the events of a run, the changes of all runs, and the inbox."""
