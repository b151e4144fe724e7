"""PostgreSQL backends: the reference storage (with PostGIS) and a catalog."""

from naksha.psql.catalog.catalog import PsqlCatalog
from naksha.psql.storage import PsqlStorage

__all__ = ["PsqlCatalog", "PsqlStorage"]
