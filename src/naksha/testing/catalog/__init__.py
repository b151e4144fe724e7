"""Conformance suites of catalog backends, with their model and fault injection.

A guarantee that every backend gives is tested here once.
"""
