"""The conformance suites of storages.

A promise that every storage keeps is tested here once, by the room of the code that keeps it.
"""
