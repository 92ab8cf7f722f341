"""Skills: reading, checking and keeping packages, and the texts that tell an engine what to do. Knows core only."""
