"""Processes and sessions: Spark sessions, the job process, progress, failures, open storages.

What is true of any job or any Python worker belongs here.
"""
