"""Comparing versions, looking at the history of features, and going back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from naksha.hub.version_requests import ReadDiff, ReadHistory, Revert, RollBack
from naksha.hub.version_responses import FeatureHistory
from naksha.model import limits
from naksha.model.query import Query as FeatureQuery
from naksha.server import version_documents as documents
from naksha.server.state import Ctx, RealmDep
from naksha.server.version_json import differences_bytes, rewritten_json, step_json

router = APIRouter(prefix="/hub/spaces/{space_id}", tags=["versions"])


class Rewriting(BaseModel):
    """What going back has in common. A key that is misspelt, such as `dryrun`, must not be left
    out of it."""

    model_config = ConfigDict(populate_by_name=True, extra="forbid")

    branch: str = "main"
    message: str | None = Field(None, max_length=limits.DESCRIPTION_LENGTH_MAX)
    dry_run: bool = Field(False, alias="dryRun", description="Only tell what would be done.")


class Rollback(Rewriting):
    """Be again what a version was, all of it or some features."""

    version_ref: str = Field(alias="versionRef")
    ids: list[str] | None = None


class Reverting(Rewriting):
    """Take back what one version changed."""

    version: int | str


_DIFF: Final = documents.answers("What differs.", documents.DIFF)
_HISTORY: Final = documents.answers("Its states, the oldest first.", documents.HISTORY)
_DONE: Final = documents.changes("What was done.", documents.REWRITTEN)


@router.get("/diff", response_class=Response, responses=_DIFF)
async def read_diff(
    space_id: str,
    realm: RealmDep,
    context: Ctx,
    version_ref: Annotated[
        str, Query(alias="versionRef", description="A range, or the older of two versions.")
    ] = "",
    other: Annotated[str | None, Query(description="The newer one, on any branch.")] = None,
) -> Response:
    """The features that differ between two versions, with the places where they do."""
    found = await realm.send(space_id, ReadDiff(ref=version_ref, other=other), context)
    return StreamingResponse(differences_bytes(found), media_type="application/json")


@router.get("/features/{feature_id}/history", response_class=Response, responses=_HISTORY)
async def feature_history(
    space_id: str,
    feature_id: str,
    realm: RealmDep,
    context: Ctx,
    version_ref: Annotated[str, Query(alias="versionRef")] = "*",
) -> Response:
    """Who did what to a feature."""
    request = ReadHistory(ref=version_ref, query=FeatureQuery(ids=(feature_id,)))
    found = await realm.send(space_id, request, context)
    return StreamingResponse(_history_bytes(found), media_type="application/json")


async def _history_bytes(found: FeatureHistory) -> AsyncIterator[bytes]:
    yield b'{"type":"FeatureHistory","steps":['
    separator = b"\n"
    async for step in found.steps:
        yield separator + step_json(step)
        separator = b",\n"
    yield b"]}"


@router.post("/rollback", response_model=None, responses=_DONE)
async def roll_back(space_id: str, body: Rollback, realm: RealmDep, context: Ctx) -> dict[str, Any]:
    """Make features again what they were; nothing of what was in between is lost."""
    request = RollBack(
        ref=f"{body.branch}:HEAD",
        to=body.version_ref,
        query=None if body.ids is None else FeatureQuery(ids=tuple(body.ids)),
        message=body.message,
        dry_run=body.dry_run,
    )
    return rewritten_json(await realm.send(space_id, request, context))


@router.post("/revert", response_model=None, responses=_DONE)
async def revert(space_id: str, body: Reverting, realm: RealmDep, context: Ctx) -> dict[str, Any]:
    """Take the changes of one version back, and leave what others did since."""
    request = Revert(
        ref=f"{body.branch}:HEAD",
        version=str(body.version),
        message=body.message,
        dry_run=body.dry_run,
    )
    return rewritten_json(await realm.send(space_id, request, context))
