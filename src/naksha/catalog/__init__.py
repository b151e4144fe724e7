"""The catalog: typed, immutable objects behind named pointers, on any database that can compare and
swap one row. Realms, commits with their log, indexes, ids and leases, cache, maintenance."""
