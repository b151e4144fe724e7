"""The SQL of the catalog on MariaDB: its tables and its named statements."""

from naksha.spi.support.sql_files import SqlFiles

_FILES = SqlFiles(__package__)


def schema() -> list[str]:
    """Return the statements that create the tables, in order; each file is one statement."""
    return [text for _, text in _FILES.schema]


def statement(name: str) -> str:
    """Return a named statement; its parameters are question marks."""
    return _FILES.queries[name]
