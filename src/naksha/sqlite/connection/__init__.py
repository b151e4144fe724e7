"""Connections to SQLite: readers, SQL functions, text decoding and errors.

Code that concerns any statement belongs here.
"""
