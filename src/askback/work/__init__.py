"""Carrying runs out: claiming turns, executing them, deadlines, recovery. Talks to the rest through the store alone."""
