"""Endpoints of versions: log, tags, branches, snapshots, differences, rollback and the feed.

An endpoint whose subject is a version or a transaction belongs here.
"""
