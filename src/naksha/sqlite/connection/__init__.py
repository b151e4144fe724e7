"""Connections to SQLite: readers, SQL functions, text decoding and errors.

What is true of any statement belongs here.
"""
