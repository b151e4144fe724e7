"""Contracts between the parts of Naksha: interfaces of storages, catalogs and jobs."""
