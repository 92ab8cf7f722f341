"""The settings: what a user configures in files and environment variables, validated.

This package does not know who uses a setting: `app` and `cli` read the model and pass plain values on. Start with `model`; the
tables of `askback.toml` are in `sections` and `notifications`. `files` reads them, `trust` decides which keys of an untrusted
file are used, and only `environment` reads the environment.
"""
