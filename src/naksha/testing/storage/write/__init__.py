"""Conformance of writing: states, namespaces, locks, concurrency and collections."""
