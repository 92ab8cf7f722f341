"""Child processes: starting, streaming, ending and confining them.

Owns everything that talks to the operating system about processes, and the locks that end with them. Does not know what a
child is for. Start with `child`; `guardian/` starts and ends process trees, `sandbox/` confines them.
"""
