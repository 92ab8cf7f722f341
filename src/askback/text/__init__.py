"""Text from untrusted sources: strict JSON and YAML, terminal-safe output, redaction. No domain knowledge."""
