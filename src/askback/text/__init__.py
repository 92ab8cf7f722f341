"""Text from outside: strict JSON and YAML, terminal-safe output, redaction. Knows no domain."""
