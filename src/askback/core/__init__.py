"""The domain, pure: what a run is and how it may move. Standard library only; no await, clock, path or socket."""
