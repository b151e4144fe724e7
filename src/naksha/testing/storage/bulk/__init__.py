"""Conformance of bulk work: staging, loads, splits and partitioning."""
