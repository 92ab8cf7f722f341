"""The storage of runs. `base` defines the interface; `sqlite` implements it without a database server."""
