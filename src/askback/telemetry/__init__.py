"""What a program observes of the runs that it changes, and how it sends that to an OpenTelemetry collector."""
