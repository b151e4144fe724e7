"""Upgrade of a storage whose log has no tile cells."""

from __future__ import annotations

from naksha.model.collection import CollectionInfo
from naksha.model.geo.tile_cells import cover
from naksha.model.query import Bbox
from naksha.model.transaction import MAIN
from naksha.model.version import HEAD, Version
from naksha.psql import PsqlStorage
from naksha.psql.schema import install as installer
from naksha.spi.tile_cells import CellChange
from naksha.testing.fixtures import DatabaseFactory
from tests.psql.aging import place
from tests.psql.schema.test_migrations import catalog, set_up
from tests.psql.support import by_force, connect_to

WITHOUT_CELLS = """
DROP TABLE naksha_cell;
ALTER TABLE naksha_tx DROP COLUMN cells;
ALTER TYPE naksha_written DROP ATTRIBUTE corners;
DROP FUNCTION
    naksha_tx_log(text, text, int8, int8, int8, int8, geometry, int8[]),
    naksha_tx_count(naksha_collection, int8, int8, int8, int8, geometry, int8[]),
    naksha_after_write(naksha_collection, int8, int8, int8, int8, geometry, int8[]),
    naksha_bulk_finish(text, int, int8, int8, geometry, int8[]), naksha_staged_index;
CREATE FUNCTION naksha_tx_log(text, text, int8, int8, int8, int8, geometry) RETURNS void
RETURN NULL;
CREATE FUNCTION naksha_tx_count(naksha_collection, int8, int8, int8, int8, geometry) RETURNS void
RETURN NULL;
CREATE FUNCTION naksha_after_write(naksha_collection, int8, int8, int8, int8, geometry)
RETURNS void RETURN NULL;
CREATE FUNCTION naksha_bulk_finish(text, int, int8, int8, geometry) RETURNS void RETURN NULL;
CREATE FUNCTION naksha_staged_index(int, text, bool, OUT int8, OUT geometry)
RETURN (0, NULL::geometry);
CREATE TABLE naksha_tx_new_2020 (LIKE naksha_tx);
DELETE FROM naksha_migration WHERE name LIKE '0015%' OR name LIKE 'schema:%'
"""
"""Takes back the tile cells in the log, and the functions that changed with them."""


async def filled(dsn: str) -> Version:
    """Make a storage with a feature, and return its last version."""
    await set_up(dsn, installer.migrations())
    storage = await PsqlStorage.open(dsn, "test")
    await storage.run(lambda s: s.create_collection(CollectionInfo(id="roads")), "app")
    await storage.run(lambda s: s.upsert("roads", [place("x", 1)]), "app")
    version = await storage.resolve(HEAD)
    await storage.close()
    return version


async def test_the_log_of_an_older_storage_gets_tile_cells(
    database_factory: DatabaseFactory,
) -> None:
    with database_factory.fresh() as fresh, database_factory.fresh() as older:
        await filled(fresh)
        version = await filled(older)
        connection = await connect_to(older)
        await by_force(connection, WITHOUT_CELLS)
        await connection.close()
        storage = await PsqlStorage.open(older, "test")
        try:
            assert await catalog(older) == await catalog(fresh)
            changes = (await storage.cell_log(version.txn - 1)).changes
            assert changes == [CellChange(version.txn, "roads", MAIN, [1])]
            await storage.run(lambda s: s.upsert("roads", [place("y", 2)]), "app")
            last = await storage.resolve(HEAD)
            [change] = (await storage.cell_log(version.txn)).changes or []
            assert change.cells == [*cover(-106, -56, -106, -56)]
            far = Bbox(100, 10, 101, 11)
            assert await storage.last_cell_change("roads", far) == version.txn < last.txn
        finally:
            await storage.close()
