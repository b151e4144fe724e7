"""Compatibility with data written by earlier releases."""
