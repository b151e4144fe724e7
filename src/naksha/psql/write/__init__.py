"""Writing to PostgreSQL: sessions, batches and branches.

The work of a single transaction belongs here; bulk loads do not.
"""
