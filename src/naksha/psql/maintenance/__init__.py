"""Background work on PostgreSQL: publication, rounds, partitions, growth and checks.

Work that runs without a caller belongs here.
"""
