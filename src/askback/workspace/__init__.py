"""The folders of one run: the engine's home, its working directory, and the output of every turn.

Owns their layout, snapshots and fork points, versions and artifacts, what the file store has of a run, uploads, sign-ins, and
folders of the user. Does not know who executes the run. An engine can write to all of it, so nothing is reached by path: see
`fs.walk`. Start with `layout`.
"""
