"""Maintenance of storages and the catalog by the hub.

Rounds, schedules and reports belong here; the individual steps belong to storages and the catalog.
"""
