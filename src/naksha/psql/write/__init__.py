"""Writing to PostgreSQL: sessions, batches and branches.

What a single transaction of the library does belongs here; bulk loads do not.
"""
