"""Data of the built-in sample: a real edit history, to demonstrate time travel.

`naksha.cli.sample` loads it.
"""
