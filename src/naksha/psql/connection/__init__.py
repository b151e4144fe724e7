"""Connections to PostgreSQL: driver, pool, servers, poolers, errors and lock diagnosis.

Code that applies to any statement belongs here.
"""
