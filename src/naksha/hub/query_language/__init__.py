"""Parsers for the REST API's query strings into plain data, without I/O and SQL."""
