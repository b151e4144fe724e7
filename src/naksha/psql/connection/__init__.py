"""Connections to PostgreSQL: driver, pool, servers, poolers, errors and lock diagnosis.

What is true of any statement belongs here.
"""
