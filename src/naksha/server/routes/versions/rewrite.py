"""Compare versions, read the history of features, roll back and revert."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import msgspec
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

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
from naksha.server.routing.declarations import QueryParam, Router

router = Router(prefix="/hub/spaces/{space_id}", tags=["versions"])


class RewriteBody(BaseModel):
    """Members common to rollback and revert.

    Unknown members, such as a misspelt `dryrun`, are rejected.
    """

    model_config = ConfigDict(populate_by_name=True, extra="forbid")

    branch: str = "main"
    message: str | None = Field(None, max_length=limits.DESCRIPTION_LENGTH_MAX)
    dry_run: bool = Field(False, alias="dryRun", description="Report the result without writing.")
    ids: list[str] | None = Field(None, description="Only these features.")


class RewriteParameters(ChangeFilterParameters):
    """Filter on the changes to undo."""

    dry_run: DryRunSwitch = Field(False, alias="dryRun", description="As in the body.")


class DiffParameters(RefParameters, ChangeFilterParameters):
    """The versions to compare, and a filter on the differences."""

    version_ref: str = Field(
        "",
        alias="versionRef",
        max_length=limits.VERSION_REF_LENGTH_MAX,
        description="A range, or the older one of two versions.",
    )
    other: str | None = Field(
        None,
        max_length=limits.VERSION_REF_LENGTH_MAX,
        description="The newer version, on any branch.",
    )


class HistoryParameters(RefParameters, ChangeFilterParameters):
    """Filter on the states of a feature."""

    version_ref: str = Field(
        "",
        alias="versionRef",
        max_length=limits.VERSION_REF_LENGTH_MAX,
        description="A range. Default: the whole history.",
    )


class RollbackBody(RewriteBody):
    """Restore the features of a version, all of them or those of a filter."""

    version_ref: str = Field(alias="versionRef")


class RevertBody(RewriteBody):
    """Undo the changes of one version."""

    version: int | str


_DIFF: Final = documents.returns("The differences.", documents.DIFF)
_HISTORY: Final = documents.returns("The states, oldest first.", documents.HISTORY)
_DONE: Final = documents.changes("The result.", documents.REWRITTEN)


@router.get("/diff", responses=_DIFF, openapi_extra=PROPERTY_QUERY)
async def read_diff(
    space_id: str,
    request: Request,
    parameters: Annotated[DiffParameters, QueryParam()],
    realm: RealmDep,
    context: Ctx,
) -> Response:
    """Return the features that differ between two versions, with the paths that differ."""
    operation = ReadDiff(
        ref=parameters.ref, other=parameters.other, query=parameters.query(request)
    )
    found = await realm.send(space_id, operation, context)
    return StreamingResponse(differences_bytes(found), media_type="application/json")


@router.get(
    "/features/{feature_id}/history",
    responses=_HISTORY,
    openapi_extra=PROPERTY_QUERY,
)
async def feature_history(
    space_id: str,
    feature_id: str,
    request: Request,
    parameters: Annotated[HistoryParameters, QueryParam()],
    realm: RealmDep,
    context: Ctx,
) -> Response:
    """Return the history of a feature, with author and action of each state."""
    query = _among(parameters.query(request), [feature_id])
    found = await realm.send(space_id, ReadHistory(ref=parameters.ref or "*", query=query), context)
    return StreamingResponse(_history_bytes(found), media_type="application/json")


def _among(query: FeatureQuery, ids: list[str] | None) -> FeatureQuery:
    """Restrict a query to the ids of another list."""
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


@router.post("/rollback", responses=_DONE, openapi_extra=PROPERTY_QUERY)
async def roll_back(
    space_id: str,
    body: RollbackBody,
    request: Request,
    parameters: Annotated[RewriteParameters, QueryParam()],
    realm: RealmDep,
    context: Ctx,
) -> dict[str, Any]:
    """Restore features to a version, all of them or those of a filter.

    This writes a new version; no history is lost.
    """
    query = _among(parameters.query(request), body.ids)
    operation = RollBack(
        ref=f"{body.branch}:HEAD",
        to=body.version_ref,
        query=None if query == MATCH_ALL else query,
        message=body.message,
        dry_run=body.dry_run or parameters.dry_run,
    )
    return rewritten_json(await realm.send(space_id, operation, context))


@router.post("/revert", responses=_DONE, openapi_extra=PROPERTY_QUERY)
async def revert(
    space_id: str,
    body: RevertBody,
    request: Request,
    parameters: Annotated[RewriteParameters, QueryParam()],
    realm: RealmDep,
    context: Ctx,
) -> dict[str, Any]:
    """Undo the changes of one version, and keep the changes made since.

    A filter restricts this to some of its changes.
    """
    operation = Revert(
        ref=f"{body.branch}:HEAD",
        version=str(body.version),
        features=_among(parameters.query(request), body.ids),
        message=body.message,
        dry_run=body.dry_run or parameters.dry_run,
    )
    return rewritten_json(await realm.send(space_id, operation, context))
