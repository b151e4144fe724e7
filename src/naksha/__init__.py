"""Naksha: a versioned geospatial feature store and hub."""

__version__ = "0.1.0.dev0"
