"""Data source `naksha`: read, stream and write DataFrames.

Options, pushdown and column conversion belong here; complete jobs belong to `naksha.spark.jobs`.
"""
