"""Conformance suites of storages.

A guarantee that every storage gives is tested here once, in the folder of the area it belongs to.
"""
