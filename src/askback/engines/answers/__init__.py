"""What an assistant message holds: the marker, a question, an output."""
