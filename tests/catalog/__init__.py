"""The catalog: backends, ids, leases, cache, commits, maintenance."""
