"""The terminal: prompts, forms and questions that are asked there, the live display of a run, and runs as text.

Knows nothing of servers and options. Start with `conversation`, a run that this program executes.
"""
