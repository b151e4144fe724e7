"""Reading from SQLite: queries, versions, layers of branches, the log and statistics.

Code that runs read-only statements belongs here.
"""
