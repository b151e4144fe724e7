"""Instances of one catalog: nodes, leases, ids, clocks, and cache invalidation between peers."""
