"""Protocols that several programs speak: JSON lines and JSON-RPC, ACP, and the forms of their own questions."""
