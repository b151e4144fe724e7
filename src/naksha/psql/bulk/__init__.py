"""Bulk work on PostgreSQL: splits, staging, bulk writers.

Code that moves many features, rather than one batch per statement, belongs here.
"""
