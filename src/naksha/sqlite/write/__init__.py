"""Writing to SQLite: the writer thread, sessions, transactions, collections and overlays.

Code that runs inside one transaction of the library belongs here; bulk loads do not.
"""
