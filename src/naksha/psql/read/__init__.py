"""Reading from PostgreSQL: queries, versions, layers of branches, the log, tiles and statistics.

Statements that change nothing belong here.
"""
