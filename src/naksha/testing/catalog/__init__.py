"""The conformance suites of catalog backends, with their model and fault injection.

A promise that every backend keeps is tested here once.
"""
