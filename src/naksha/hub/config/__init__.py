"""The configuration of a realm: its objects, the references between them, and changes to it.

Validation that needs the whole configuration belongs here; opening what is configured does not.
"""
