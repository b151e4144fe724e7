"""Storages of a hub: open instances, locations, identities and ownership by realms.

Checks of whether a realm may open a storage belong here.
"""
