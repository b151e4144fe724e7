"""Maintenance of the catalog."""
