"""The player of scripts: a program of its own. It uses the standard library only, and little of it, to start fast."""
