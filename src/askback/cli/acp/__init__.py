"""The ACP agent: a thin client of a server, driven by an editor or a chat bridge over stdio. The runs outlive it."""
