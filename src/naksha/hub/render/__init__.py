"""Functions that reduce or reshape results for maps and lists.

Sampling, simplification, clusters, projection of members and counts belong here; filters belong to
the storages.
"""
