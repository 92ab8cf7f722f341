"""Files and folders: safe paths, atomic writes, archives, and the one tree walker.

Owns how Askback reads and writes where an engine may change things at the same moment. Does not know what a file is for.
Start with `walk`, which reads trees by descriptors; `beneath` writes and removes below a folder, `copies` and the two archive
modules use both.
"""
