"""Maintenance that the hub runs for its storages and its catalog.

Rounds, schedules and their reports belong here; the steps belong to the storages and the catalog.
"""
