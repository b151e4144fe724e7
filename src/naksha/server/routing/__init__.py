"""Declared endpoints: routers, binding of parameters, and dispatch of requests.

This room knows HTTP and types, but no endpoint; those are declared in `naksha.server.routes`.
"""
