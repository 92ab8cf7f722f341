"""The engines: one file each, pure. See `base` for what an engine is and `registry` for how they are found."""
