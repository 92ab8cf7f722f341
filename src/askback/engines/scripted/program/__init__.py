"""The program behind the engine `scripted`: plays a script, started as a child. It shares no code with Askback.

It uses little of the standard library and nothing else, to start fast.
"""
