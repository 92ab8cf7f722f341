"""One turn: prepare, execute, observe, verdict."""
