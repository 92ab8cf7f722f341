"""The command line: commands, their options, what they print, and questions on the terminal.

Knows the service and the client, and decides nothing about runs. Imports late: `askback --help` must be fast. Start with
`main`, which lists all commands; `commands` has one module for each group, `terminal` everything that asks and shows.
"""
