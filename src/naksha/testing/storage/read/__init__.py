"""Conformance of reading: queries, pages, tiles, statistics and damaged rows."""
