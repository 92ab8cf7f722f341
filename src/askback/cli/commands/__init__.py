"""The commands, in one module for each noun. `askback.cli.main` lists them, and imports a module when it is called.

A module has the options and the texts of its commands. What several commands share is in `askback.cli`.
"""
