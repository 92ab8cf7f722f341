"""Following changes: events of a run, changes of all runs, the inbox. One shared reader."""
