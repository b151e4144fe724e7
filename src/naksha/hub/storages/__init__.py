"""The storages of a hub: open instances, locations, identities and ownership by realms.

Whether a storage may be opened, and by which realm, is decided here.
"""
