"""Comparing versions, looking at the history of features, and going back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from naksha.hub.pipeline.requests import MATCH_ALL
from naksha.hub.pipeline.version_requests import ReadDiff, ReadHistory, Revert, RollBack
from naksha.hub.pipeline.version_responses import FeatureHistory
from naksha.model import limits
from naksha.model.query import Query as FeatureQuery
from naksha.server.openapi import version_schemas as documents
from naksha.server.requests.parameters import (
    PROPERTY_QUERY,
    ChangeFilterParameters,
    DryRunSwitch,
    RefParameters,
)
from naksha.server.requests.state import Ctx, RealmDep
from naksha.server.responses.version_json import differences_bytes, rewritten_json, step_json

router = APIRouter(prefix="/hub/spaces/{space_id}", tags=["versions"])


class Rewriting(BaseModel):
    """What going back has in common. A key that is misspelt, such as `dryrun`, must not be left
    out of it."""

    model_config = ConfigDict(populate_by_name=True, extra="forbid")

    branch: str = "main"
    message: str | None = Field(None, max_length=limits.DESCRIPTION_LENGTH_MAX)
    dry_run: bool = Field(False, alias="dryRun", description="Only tell what would be done.")
    ids: list[str] | None = Field(None, description="Only these features.")


class RewritingParameters(ChangeFilterParameters):
    """Which changes are taken back."""

    dry_run: DryRunSwitch = Field(False, alias="dryRun", description="As in the body.")


class DiffParameters(RefParameters, ChangeFilterParameters):
    """Which versions are compared."""

    version_ref: str = Field(
        "",
        alias="versionRef",
        max_length=limits.VERSION_REF_LENGTH_MAX,
        description="A range, or the older of two versions.",
    )
    other: str | None = Field(
        None,
        max_length=limits.VERSION_REF_LENGTH_MAX,
        description="The newer one, on any branch.",
    )


class HistoryParameters(RefParameters, ChangeFilterParameters):
    """Which states of a feature."""

    version_ref: str = Field(
        "",
        alias="versionRef",
        max_length=limits.VERSION_REF_LENGTH_MAX,
        description="A range; everything unless given.",
    )


class Rollback(Rewriting):
    """Be again what a version was, all of it or some features."""

    version_ref: str = Field(alias="versionRef")


class Reverting(Rewriting):
    """Take back what one version changed."""

    version: int | str


_DIFF: Final = documents.answers("What differs.", documents.DIFF)
_HISTORY: Final = documents.answers("Its states, the oldest first.", documents.HISTORY)
_DONE: Final = documents.changes("What was done.", documents.REWRITTEN)


@router.get("/diff", response_class=Response, responses=_DIFF, openapi_extra=PROPERTY_QUERY)
async def read_diff(
    space_id: str,
    request: Request,
    parameters: Annotated[DiffParameters, Query()],
    realm: RealmDep,
    context: Ctx,
) -> Response:
    """The features that differ between two versions, with the places where they do."""
    asked = ReadDiff(ref=parameters.ref, other=parameters.other, query=parameters.query(request))
    found = await realm.send(space_id, asked, context)
    return StreamingResponse(differences_bytes(found), media_type="application/json")


@router.get(
    "/features/{feature_id}/history",
    response_class=Response,
    responses=_HISTORY,
    openapi_extra=PROPERTY_QUERY,
)
async def feature_history(
    space_id: str,
    feature_id: str,
    request: Request,
    parameters: Annotated[HistoryParameters, Query()],
    realm: RealmDep,
    context: Ctx,
) -> Response:
    """Who did what to a feature."""
    query = _among(parameters.query(request), [feature_id])
    found = await realm.send(space_id, ReadHistory(ref=parameters.ref or "*", query=query), context)
    return StreamingResponse(_history_bytes(found), media_type="application/json")


def _among(query: FeatureQuery, ids: list[str] | None) -> FeatureQuery:
    """The query with the ids of another list, too: both must hold."""
    if ids is None:
        return query
    both = tuple(id for id in ids if query.ids is None or id in query.ids)
    return msgspec.structs.replace(query, ids=both)


async def _history_bytes(found: FeatureHistory) -> AsyncIterator[bytes]:
    yield b'{"type":"FeatureHistory","steps":['
    separator = b"\n"
    async for step in found.steps:
        yield separator + step_json(step)
        separator = b",\n"
    yield b"]}"


@router.post("/rollback", response_model=None, responses=_DONE, openapi_extra=PROPERTY_QUERY)
async def roll_back(
    space_id: str,
    body: Rollback,
    request: Request,
    parameters: Annotated[RewritingParameters, Query()],
    realm: RealmDep,
    context: Ctx,
) -> dict[str, Any]:
    """Make features again what they were, those of a filter or all; nothing of what was in between
    is lost."""
    query = _among(parameters.query(request), body.ids)
    asked = RollBack(
        ref=f"{body.branch}:HEAD",
        to=body.version_ref,
        query=None if query == MATCH_ALL else query,
        message=body.message,
        dry_run=body.dry_run or parameters.dry_run,
    )
    return rewritten_json(await realm.send(space_id, asked, context))


@router.post("/revert", response_model=None, responses=_DONE, openapi_extra=PROPERTY_QUERY)
async def revert(
    space_id: str,
    body: Reverting,
    request: Request,
    parameters: Annotated[RewritingParameters, Query()],
    realm: RealmDep,
    context: Ctx,
) -> dict[str, Any]:
    """Take the changes of one version back, those of a filter or all, and leave what others did
    since."""
    asked = Revert(
        ref=f"{body.branch}:HEAD",
        version=str(body.version),
        features=_among(parameters.query(request), body.ids),
        message=body.message,
        dry_run=body.dry_run or parameters.dry_run,
    )
    return rewritten_json(await realm.send(space_id, asked, context))
