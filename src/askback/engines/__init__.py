"""One module or folder per coding-agent program: the command line that it gets, and what its output means.

Knows `core`, `questions` and `text`, and does no I/O: files, processes and the state of a run are elsewhere. Start with
`base`, which has the interface and its defaults, then `qwen`, a whole engine in one file. `registry` finds the engines,
`launches`, `parser`, `failures` and `protocols/` have what they share.
"""
