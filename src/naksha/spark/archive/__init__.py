"""Archives: history in GeoParquet files with a manifest, and the versions in them.

The format and its readers belong here; the job that writes an archive is
`naksha.spark.jobs.archive`.
"""
