"""Bulk operations on SQLite: splits and staging.

Code that moves many features without one statement per batch belongs here.
"""
