"""The guardian: a separate program that starts every engine and ends its process tree.

`client` is Askback's side. `program` is the guardian, and `keeper` what it forks for each engine: both run without
site-packages and import nothing of Askback but the modules of this package. Must not know what an engine is for. Start with
`program`, which documents the protocol.
"""
