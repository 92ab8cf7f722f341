"""Child processes: starting, streaming, ending and confining them. Does not know what a child is for.

Start with `child`; `guardian/` starts and ends the process trees, `sandbox/` confines them.
"""
