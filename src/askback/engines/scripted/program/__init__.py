"""The program behind the engine `scripted`: a child process that plays a script. It shares no code with Askback.

To start fast, it imports little of the standard library and nothing else.
"""
