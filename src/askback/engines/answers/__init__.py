"""Finds the marker, questions and outputs in assistant messages."""
