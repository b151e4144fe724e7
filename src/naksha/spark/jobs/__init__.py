"""Jobs of the data pipeline; each is a function of a session and a specification.

A job is one module; the parts of `load` that depend on the file format are in `loading`.
"""
