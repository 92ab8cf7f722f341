"""Webhooks: message formats, sending, delivery with retries."""
