"""The HTTP side: who may come in, what is sent and answered. Decides nothing about runs; the service does."""
