"""The engines of this machine: how each is started, probes of what it can do, its models, and which engine a run gets.

Does not know runs. Start with `engines`, then `probes`; `models` asks a program for its models.
"""
