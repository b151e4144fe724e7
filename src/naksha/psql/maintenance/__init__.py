"""Background work on PostgreSQL: publication, rounds, partitions, growth and checks.

Whatever runs without a caller belongs here.
"""
