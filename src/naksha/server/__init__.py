"""The REST API of the hub, as an ASGI application."""
