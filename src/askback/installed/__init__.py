"""The engines that are installed on this machine, and what they can do."""
