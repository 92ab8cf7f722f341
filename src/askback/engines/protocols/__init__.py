"""Protocols that several engines share."""
