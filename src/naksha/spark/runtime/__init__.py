"""Runtime of Spark jobs: sessions, the job process, progress, failures, open storages.

Code that applies to every job or every Python worker belongs here.
"""
