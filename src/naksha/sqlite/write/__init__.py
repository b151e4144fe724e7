"""Writing to SQLite: the writer thread, sessions, transactions, collections and overlays.

What a single transaction of the library does belongs here; bulk loads do not.
"""
