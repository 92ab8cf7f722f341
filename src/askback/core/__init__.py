"""The domain model: what a run is and how its state changes. Pure: standard library only, no async and no I/O."""
