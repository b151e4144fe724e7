"""Meta features written by plain SQL."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

from tests.psql.support import Connect

PUT = "SELECT naksha_meta_put('roads', $1, $2)"
GET = "SELECT jsondata FROM roads_meta"


def note(**properties: Any) -> str:
    return json.dumps({"type": "Feature", "properties": properties})


async def test_the_last_value_counts(connect: Connect) -> None:
    shell = await connect()
    for n in (1, 2, 3):
        await shell.execute(PUT, "survey", note(n=n))
        assert json.loads(await shell.fetchval(GET)) == json.loads(note(n=n)) | {"id": "survey"}
    assert await shell.fetchval("SELECT naksha_meta_delete('roads', 'survey')") is True
    assert await shell.fetchval("SELECT naksha_meta_delete('roads', 'survey')") is False


async def test_of_naksha_s_own_the_later_version_stays(connect: Connect) -> None:
    shell = await connect()
    for txn, stays in (("5", "5"), ("7", "7"), ("6", "7")):
        await shell.execute(PUT, "naksha:x", note(txn=txn))
        assert json.loads(await shell.fetchval(GET))["properties"] == {"txn": stays}


async def test_the_table_itself_is_guarded(connect: Connect) -> None:
    shell = await connect()
    with pytest.raises(asyncpg.PostgresError) as error:
        await shell.execute("DELETE FROM roads_meta")
    assert "naksha_meta_delete" in str(error.value.hint)
