"""Protocols that several programs speak: JSON lines and JSON-RPC, ACP, and the questions that programs ask themselves."""
