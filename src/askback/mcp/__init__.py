"""The MCP server: tools that start skills, and bring their questions to the user of an MCP client.

Every tool is a client of the HTTP API, on stdio and at `/mcp` alike; nothing is decided here. Start with `tools`. Needs the extra `mcp`; only `server`, `http_face` and
`stdio` import the SDK at the top, and they are imported late.
"""
