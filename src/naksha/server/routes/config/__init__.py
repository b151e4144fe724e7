"""Endpoints of the configuration: spaces, connectors, storages, roles and subscriptions.

One module per kind of object, on the shared routes of `_crud`.
"""
