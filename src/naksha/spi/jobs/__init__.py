"""The protocol between a job of the pipeline and the process that started it.

Messages, the process runner and the truncation of reports belong here; the jobs are in
`naksha.spark.jobs`.
"""
