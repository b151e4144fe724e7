"""Identifiers: transaction numbers, GUIDs, UUIDs, storage identities and the rules for names.

A codec or a rule for an id belongs here; whatever draws a number belongs to a storage.
"""
