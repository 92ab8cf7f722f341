"""Executing runs: claims, turns, deadlines, retention. Connected to the rest only through the store."""
