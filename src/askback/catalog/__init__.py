"""The engines of this machine: probes of what each can do, its models, and which engine a run gets.

Does not know runs. Start with `engines`.
"""
