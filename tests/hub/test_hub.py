"""A hub as a whole, on a file and in memory: creation, writes and reads of spaces."""

import asyncio
from pathlib import Path

import pytest

from naksha.hub.auth.rights import all_rights
from naksha.hub.config.objects import Space
from naksha.hub.config.realm_setup import DefaultStorage
from naksha.hub.hub import Hub
from naksha.hub.pipeline.request_context import Actor, RequestContext
from naksha.hub.pipeline.requests import IfExists, Modification, ReadFeatures, WriteFeatures
from naksha.model.errors import NotFound, ReadOnly
from naksha.model.query import Query

ACTOR = Actor(realm="default", app_id="tests", rights=all_rights())
CONTEXT = RequestContext(actor=ACTOR, stream_id="test")


async def test_a_space_is_made_written_and_read(tmp_path: Path) -> None:
    storage = DefaultStorage(location=f"file:{tmp_path}/{{realm}}.naksha")
    hub = await Hub.open("memory:", storage)
    try:
        realm = await hub.realm("default")
        await realm.registry.create(Space(id="Roads.v1"), ACTOR)
        feature = {"type": "Feature", "id": "a", "geometry": None, "properties": {"n": 1}}
        write = WriteFeatures(
            modifications=(Modification(features=(feature,), if_exists=IfExists.REPLACE),)
        )
        written = await realm.send("Roads.v1", write, CONTEXT)
        assert written.inserted == ("a",)
        assert written.version == 1
        answer = await realm.send("Roads.v1", ReadFeatures(query=Query(ids=("a",))), CONTEXT)
        (state,) = await answer.all()
        assert state.feature["properties"]["n"] == 1
        with pytest.raises(NotFound):
            await realm.send("other", write, CONTEXT)
        await realm.registry.create(Space(id="shown", read_only=True), ACTOR)
        with pytest.raises(ReadOnly) as refused:
            await realm.send("shown", write, CONTEXT)
        assert refused.value.handler == "readOnly"
    finally:
        await hub.close()


async def test_many_may_set_up_a_realm_at_once(tmp_path: Path) -> None:
    """As several instances do that are started together."""
    hub = await Hub.open("memory:", DefaultStorage(location=f"file:{tmp_path}/{{realm}}.naksha"))
    try:
        await asyncio.gather(*(hub.set_up_realm("new") for _ in range(8)))
        assert (await hub.realm("new")).realm_id == "new"
    finally:
        await hub.close()
