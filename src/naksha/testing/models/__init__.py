"""Plain models and Hypothesis strategies that the suites compare storages with.

A model keeps whole copies and may be slow.
"""
