"""The shapes of the HTTP API, each written once.

The server encodes them, the client decodes them, the command line and the page show them, webhooks send them, and the OpenAPI
document is made from them. Imports only `core` and `text`. Start with `base`, which says what a shape is.
"""
