"""Deletion of more features than one transaction takes, with each deletion reported."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from naksha.hub.auth.rights import parse_rights
from naksha.hub.pipeline.request_context import Actor, RequestContext
from naksha.model import limits
from naksha.model.errors import Forbidden
from naksha.server.requests.parameters import DeleteParameters
from naksha.server.responses.feature_collections import SpaceRequest
from naksha.server.routes.features.features import delete_features
from tests.hub.handlers.support import HubUnderTest, feature, open_hub

RIGHTS = parse_rights(
    {
        "naksha": {
            "useSpaces": [{}],
            "readFeatures": [{}],
            "createFeatures": [{}],
            "updateFeatures": [{}],
            "deleteFeatures": [{"tags": "mine"}],
        }
    }
)


async def erase(hub: HubUnderTest) -> dict[str, Any]:
    """The response to an actor who may delete some features and does not accept JSON."""
    scope = {"type": "http", "headers": [], "query_string": b"eraseContent=true"}
    actor = Actor(realm="default", app_id="tests", rights=RIGHTS)
    context = await hub.realm.resolved(RequestContext(actor=actor, stream_id="test"))
    asked = SpaceRequest(Request(scope), "map", hub.realm, context)
    answer = await delete_features(asked, DeleteParameters.model_validate({"eraseContent": True}))
    assert answer.status_code == 200
    told: dict[str, Any] = json.loads(bytes(answer.body))
    assert answer.headers["Failed-Features"] == str(len(told["failed"]))
    return told


async def test_deleted_ids_are_reported_when_a_later_part_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_hub(f"file:{tmp_path}/{{realm}}.naksha") as hub:
        await hub.space("base")
        await hub.space("edits")
        await hub.space("map", ("view", {"spaceIds": ["edits", "base"]}))
        await hub.put("edits", feature("a", tags=["mine"]), feature("b", tags=["mine"]))
        await hub.put("base", feature("c"))
        with pytest.raises(Forbidden):
            await erase(hub)
        assert [*await hub.read("map")] == ["a", "b", "c"]  # one transaction, so nothing was done
        monkeypatch.setattr(limits, "WRITE_FEATURES_MAX", 2)
        told = await erase(hub)
        assert sorted(told["deleted"]) == ["a", "b"]
        (failure,) = told["failed"]
        assert failure["code"] == "forbidden"
        assert "2 of 3 features were deleted" in failure["message"]
        assert [*await hub.read("map")] == ["c"]
        with pytest.raises(Forbidden):  # nothing was done before it
            await erase(hub)
