"""Where runs live. `base` says what a store is, `sqlite` is the one that needs no server."""
