"""Geometry as pure values: GeoJSON, WKB, the date line, quad keys and tile addresses.

Rules that every storage applies to coordinates belong here; tests of geometries against stored data
belong to the storages.
"""
