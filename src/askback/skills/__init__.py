"""Skills: reading, validating and storing packages, and the prompts for engines. Does not know engines or runs' states."""
