"""Writes that handlers change on their way: current states, locks, parts and combined responses.

Handlers use them; the meaning of a write to a stored space is in `naksha.hub.write`.
"""
