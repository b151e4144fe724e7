"""Bulk work on PostgreSQL: splits and staging.

Code that moves many features, rather than one batch per statement, belongs here.
"""
