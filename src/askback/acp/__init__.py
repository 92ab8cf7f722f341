"""The ACP agent: a thin client of a server, driven by an editor or a chat bridge over stdio. The runs outlive it.

Does not decide anything: it uses the API through the client. Start with `agent`.
"""
