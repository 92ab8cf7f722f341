"""The sandbox around every engine: bubblewrap, visible files, networks, system calls.

Owns what an engine can see and reach. Does not know runs or engines. Start with `bubblewrap`; `visibility` decides which
files are shown.
"""
