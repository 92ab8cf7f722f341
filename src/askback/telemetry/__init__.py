"""What a program observes of its own runs, and how it sends that to an OpenTelemetry collector."""
