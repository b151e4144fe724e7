"""Bulk operations on SQLite: splits, staging and bulk writers.

Code that moves many features without one statement per batch belongs here.
"""
