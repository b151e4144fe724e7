"""The protocol between a job of the pipeline and the process that started it.

Messages, the process runner and the size limits of reports belong here; the jobs are in
`naksha.spark.jobs`.
"""
