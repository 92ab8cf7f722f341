"""The Agent Client Protocol: one conversation for every engine that speaks it."""
