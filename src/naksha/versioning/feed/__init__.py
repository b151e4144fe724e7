"""The change feed of a line: events, filters, positions, and reading the states behind them.

What subscribers read in order belongs here; the log for people is `naksha.versioning.log`.
"""
