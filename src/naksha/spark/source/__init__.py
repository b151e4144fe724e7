"""The data source `naksha`: reading, streaming and writing DataFrames.

Options, pushdown and column conversion belong here; complete jobs belong to `naksha.spark.jobs`.
"""
