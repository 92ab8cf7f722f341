"""The HTTP API: authentication, operations by resource, event streams. The service makes all decisions about runs."""
