"""Reading from SQLite: queries, versions, layers of branches, the log and statistics.

Statements that change nothing belong here.
"""
