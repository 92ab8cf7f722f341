"""The terminal: prompts, live output, rendering."""
