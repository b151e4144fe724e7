"""Private servers for tests: PostgreSQL, Redis, MariaDB, pgbouncer, Spark and the hub.

A server that tests start and stop belongs here.
"""
