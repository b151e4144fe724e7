"""The change feed of a line: events, filters, positions, and reading the states behind them.

It serves subscribers, which read changes in order; the log for people is `naksha.versioning.log`.
"""
