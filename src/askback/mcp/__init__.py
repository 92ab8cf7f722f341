"""The MCP server: tools that start skills, and bring their questions to the user of an MCP client.

Every tool is a client of the HTTP API, on stdio and at `/mcp` alike; nothing is decided here. Start with `tools`. Needs the extra `mcp`; only `server`, `http_face` and
`stdio` import the SDK at the top, and they are imported late.
"""

from importlib.util import find_spec

INSTALL = "install it with: pip install 'askback[mcp]' (with pipx: pipx inject askback 'askback[mcp]')"


def missing_package() -> bool:
    """Whether the package of the extra `mcp` is missing."""
    return find_spec("mcp") is None or find_spec("mcp_types") is None
