"""Archives: history in GeoParquet files with a manifest, including its versions.

The format and its readers belong here; the job that writes an archive is
`naksha.spark.jobs.archive`.
"""
