"""Contracts between the parts of Naksha: interfaces of storages, catalogs and jobs.

Code that several backends share is in `query` and `support`.
"""
