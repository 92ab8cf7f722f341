"""The ACP agent: a thin client of a server, driven by an editor or a chat bridge over stdio. The runs outlive it.

Owns the protocol: sessions, slash commands, questions as forms or messages. Decides nothing about runs, and reaches them
through the client alone. Start with `agent`.
"""
