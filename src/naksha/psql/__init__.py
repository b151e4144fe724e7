"""The reference storage on PostgreSQL + PostGIS."""

from naksha.psql.storage import PsqlStorage

__all__ = ["PsqlStorage"]
