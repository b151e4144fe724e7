"""Query compiler: a `Query` becomes a plan once, which each SQL dialect prints.

`plan` defines the conditions and the tables to read, `printer` prints what all dialects have in
common, and `predicates` evaluates the same conditions in Python.
"""
