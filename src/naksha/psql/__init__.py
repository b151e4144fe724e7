"""The reference storage and a catalog: PostgreSQL, the storage with PostGIS."""

from naksha.psql.catalog.catalog import PsqlCatalog
from naksha.psql.storage import PsqlStorage

__all__ = ["PsqlCatalog", "PsqlStorage"]
