"""The catalog backend on MariaDB: every conditional operation is one statement."""

from naksha.mariadb.catalog import MariadbCatalog

__all__ = ["MariadbCatalog"]
