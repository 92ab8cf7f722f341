"""The HTTP API: authentication, limits, event streams, and the OpenAPI document; `routes/` has the operations.

It decides nothing about runs: handlers call `runs.service`, and what they return are shapes of `wire`. Start with `routing`,
which declares an operation, and `auth`, the gate that every request passes before its body is read.
"""
