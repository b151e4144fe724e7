"""Instances of one catalog: nodes, leases, ids, clocks, and cache invalidation between peers.

What one instance needs to know of another belongs here.
"""
