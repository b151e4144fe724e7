"""Bulk work on PostgreSQL: splits, staging, bulk writers.

What moves many features without one statement per batch belongs here.
"""
