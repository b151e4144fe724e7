"""Instances of one catalog: nodes, leases, ids, clocks, and cache invalidation between peers.

What instances have to agree on belongs here; what they store belongs one level up.
"""
