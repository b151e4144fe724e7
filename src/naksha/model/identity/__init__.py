"""Identifiers: transaction numbers, GUIDs, UUIDs, storage identities and the rules for names.

A codec or a rule for an id belongs here; code that allocates numbers belongs to a storage.
"""
