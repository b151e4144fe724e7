"""Realm configuration: objects, the references between them, validation and changes.

Validation that needs the whole configuration belongs here; opening storages and handlers does not.
"""
