"""The catalog: typed, immutable objects behind named pointers.

It runs on any database that can compare and swap one row, and provides realms, commits with their
log, indexes, ids and leases, a cache, and maintenance.
"""
