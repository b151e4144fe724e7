"""Maintenance of a file in which a step fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from naksha.model.errors import NakshaError
from naksha.model.query import Query
from naksha.sqlite import SqliteStorage
from naksha.testing.suite_support import Handle, point
from tests.sqlite.support import shell

REFUSE = (
    "CREATE TRIGGER keep BEFORE DELETE ON naksha_collection WHEN old.id = 'places'"
    " BEGIN SELECT RAISE(ABORT, 'places must stay'); END"
)


async def test_a_collection_that_cannot_be_removed_delays_nothing_else(
    storage: SqliteStorage, path: Path
) -> None:
    await storage.run(lambda session: session.drop_collection("places"), "app")
    await Handle(storage, "roads").create(point("a"))
    shell(path, REFUSE)
    with pytest.raises(NakshaError, match=r"removal of places: .*places must stay"):
        await storage.maintain()
    info = await storage.collection("roads")
    assert info.estimated_feature_count == 1
    shell(path, "DROP TRIGGER keep")
    await storage.maintain()
    assert await storage.count("roads", Query()) == 1
    assert shell(path, "SELECT count(*) FROM naksha_collection WHERE id = 'places'") == "0"
