"""The log of a space: what was changed by which version."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal
from urllib.parse import unquote

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from naksha.hub.config.objects import Space
from naksha.hub.pipeline.version_requests import (
    ForgetVersions,
    ReadChangesets,
    ReadDiff,
    ReadVersionSpan,
)
from naksha.hub.pipeline.version_responses import Changesets
from naksha.model import limits
from naksha.model.errors import InvalidArgument, VersionNotFound
from naksha.model.version import SEQ_NUMBER_LIMIT
from naksha.server.openapi import version_schemas as documents
from naksha.server.requests.parameter_checks import OPERATORS
from naksha.server.requests.parameters import (
    PROPERTY_QUERY,
    ChangeFilterParameters,
    Limit,
    RefParameters,
)
from naksha.server.requests.state import Ctx, RealmDep
from naksha.server.responses.encoding import streamed
from naksha.server.responses.version_json import changeset_bytes, changesets_bytes, squashed_bytes
from naksha.versioning.version_refs import MAIN_BRANCH

router = APIRouter(prefix="/hub/spaces/{space_id}", tags=["versions"])

CHANGESET: Final = "application/vnd.here.changeset"
CHANGESETS: Final = "application/vnd.here.changeset-collection"
COMPACT: Final = "application/vnd.here.compact-changeset"
MISSING: Final = "The requested resource does not exist."
"""In these very words: clients compare it."""
_OLDER: Final = re.compile(r"version(?:<|=lt=)([0-9]{1,18})")


class ChangesetParameters(RefParameters, ChangeFilterParameters):
    """Which changes of a version, and how many."""

    version_ref: str = Field(
        "",
        alias="versionRef",
        description="The branch; main unless given.",
        max_length=limits.VERSION_REF_LENGTH_MAX,
    )
    page_token: str = Field(
        "",
        alias="pageToken",
        max_length=limits.FEED_POSITION_LENGTH_MAX,
        description="The `nextPageToken` of the page before.",
    )
    limit: Limit = limits.PAGE_DEFAULT
    operation: list[Literal["I", "U", "D"]] = Field(
        [], description="Only what was inserted, updated or deleted."
    )

    def read(self, request: Request, ref: str, *, single: bool = False) -> ReadChangesets:
        """The request for a range of the log, or for one version of it."""
        actions = tuple(_ACTIONS[letter] for letter in self.operation) or None
        return ReadChangesets(
            ref=ref,
            single=single,
            after=self.page_token,
            limit=self.limit,
            features=self.query(request, actions=actions),
        )


class LogParameters(ChangesetParameters):
    """Which part of the log."""

    version_ref: str = Field(
        "",
        alias="versionRef",
        description="A range such as `3..9` (after version 3, until and with version 9), or a "
        "version: everything up to it.",
        max_length=limits.VERSION_REF_LENGTH_MAX,
    )
    start_version: int | None = Field(
        None,
        alias="startVersion",
        ge=0,
        le=limits.INT8_MAX,
        deprecated=True,
        description="The first version of a range.",
    )
    end_version: int | None = Field(
        None,
        alias="endVersion",
        ge=0,
        le=limits.INT8_MAX,
        deprecated=True,
        description="The last version of a range; it may be still to come.",
    )
    squashed: bool = Field(
        False,
        description="Every feature once, as it was in the end: all of the range, in one answer.",
    )

    @property
    def ref(self) -> str:
        """The range; the older parameters include both of their ends."""
        start, end = self.start_version, self.end_version
        if start is None and end is None:
            return super().ref
        if super().ref:
            raise InvalidArgument(
                "startVersion and endVersion are not given together with it", field="versionRef"
            )
        if start is not None and end is not None and start > end:
            raise InvalidArgument(f"{end} is before startVersion, {start}", field="endVersion")
        # Larger numbers are transactions.
        first, last = (min(number or 0, SEQ_NUMBER_LIMIT - 1) for number in (start, end))
        return f"{max(0, first - 1)}..{'HEAD' if end is None else last}"

    def difference(self, request: Request) -> ReadDiff:
        """The request for all of the range together."""
        return ReadDiff(ref=self.ref, query=self.query(request), of_log=True)


Log = Annotated[LogParameters, Query()]


class OnBranchParameters(RefParameters):
    """The branch whose versions are counted."""

    version_ref: str = Field(
        "",
        alias="versionRef",
        description="The branch; main unless given.",
        max_length=limits.VERSION_REF_LENGTH_MAX,
    )


OnBranch = Annotated[OnBranchParameters, Query()]
_OLDER_THAN: Final[dict[str, Any]] = {
    "parameters": [
        {
            "name": "version",
            "in": "query",
            "required": True,
            "description": "`version<7` or `version=lt=7`: the versions before this one.",
            "schema": {"type": "string", "pattern": "^lt=[0-9]{1,18}$"},
            OPERATORS: True,
        }
    ]
}
_ACTIONS: Final = {"I": "CREATE", "U": "UPDATE", "D": "DELETE"}


_COLLECTION: Final = documents.answers(
    "What was changed.",
    {"oneOf": [documents.CHANGESETS, documents.SQUASHED]},
    CHANGESETS,
    CHANGESET,
)
_HISTORY: Final = documents.answers(
    "What was changed.", {"oneOf": [documents.CHANGESETS, documents.SQUASHED]}, CHANGESETS, COMPACT
)


@router.get(
    "/changesets", response_class=Response, responses=_COLLECTION, openapi_extra=PROPERTY_QUERY
)
async def read_changesets(
    space_id: str, request: Request, parameters: Log, realm: RealmDep, context: Ctx
) -> Response:
    """What was changed, by which version."""
    if parameters.squashed:
        found = await realm.send(space_id, parameters.difference(request), context)
        return streamed(squashed_bytes(found, "Changeset", parameters.operation), CHANGESET)
    page = await realm.send(space_id, parameters.read(request, parameters.ref), context)
    return _collection(page)


def _collection(page: Changesets) -> Response:
    if page.is_empty:
        raise VersionNotFound(MISSING, field="versionRef")
    return streamed(changesets_bytes(page), CHANGESETS)


@router.get(
    "/changesets/statistics",
    response_model=None,
    responses=documents.answers("Versions.", documents.CHANGESET_STATISTICS),
)
async def changeset_statistics(
    space_id: str, realm: RealmDep, context: Ctx, branch: OnBranch
) -> dict[str, Any]:
    """The oldest and the newest version."""
    span = await realm.send(space_id, ReadVersionSpan(ref=branch.ref), context)
    return {
        "type": "ChangesetsStatisticsResponse",
        "minVersion": span.min_version,
        "maxVersion": span.max_version,
    }


@router.get(
    "/changesets/{version}",
    response_class=Response,
    responses=documents.answers("What it changed.", documents.CHANGESET, CHANGESET),
    openapi_extra=PROPERTY_QUERY,
)
async def read_changeset(
    space_id: str,
    version: int,
    request: Request,
    parameters: Annotated[ChangesetParameters, Query()],
    realm: RealmDep,
    context: Ctx,
) -> Response:
    """What one version changed."""
    if not 1 <= version <= limits.INT8_MAX:
        raise InvalidArgument("A version is at least 1", field="version")
    name = parameters.ref.partition(":")[0] or MAIN_BRANCH
    asked = parameters.read(request, f"{name}:{version}", single=True)
    page = await realm.send(space_id, asked, context)
    if not page.changesets:
        raise VersionNotFound(MISSING, field="version")
    return streamed(changeset_bytes(page.changesets[0], page.after), CHANGESET)


@router.delete(
    "/changesets",
    status_code=204,
    responses=documents.removes("They are gone."),
    openapi_extra=_OLDER_THAN,
)
async def forget_changesets(
    space_id: str, request: Request, realm: RealmDep, context: Ctx
) -> Response:
    """Give up versions older than one: `?version<N` or `?version=lt=N`. They cannot be read by
    this space any more; the collection itself keeps its history as long as its `maxAge` says."""
    version = _older_than(request.url.query)
    await realm.send(space_id, ForgetVersions(older_than=version), context)
    await realm.registry.change(
        Space, space_id, lambda space: space.without_versions_before(version), context.actor
    )
    return Response(status_code=204)


def _older_than(query: str) -> int:
    """The version of `version<N`, however it is encoded."""
    found = [_OLDER.fullmatch(unquote(part)) for part in query.split("&")]
    versions = [int(match[1]) for match in found if match is not None]
    if len(versions) != 1 or versions[0] < 1:
        raise InvalidArgument("Say which ones, as in ?version<7 or ?version=lt=7", field="version")
    return versions[0]


@router.get("/history", response_class=Response, responses=_HISTORY, openapi_extra=PROPERTY_QUERY)
async def read_history(
    space_id: str, request: Request, parameters: Log, realm: RealmDep, context: Ctx
) -> Response:
    """The older form of `changesets`; what is accepted decides between all of them and what they
    come to together."""
    if COMPACT in request.headers.get("Accept", ""):
        found = await realm.send(space_id, parameters.difference(request), context)
        compact = squashed_bytes(found, "CompactChangeset", parameters.operation)
        return streamed(compact, COMPACT)
    page = await realm.send(space_id, parameters.read(request, parameters.ref), context)
    return _collection(page)


@router.get(
    "/history/statistics",
    response_model=None,
    responses=documents.answers("Versions.", documents.HISTORY_STATISTICS),
)
async def history_statistics(
    space_id: str, realm: RealmDep, context: Ctx, branch: OnBranch
) -> dict[str, Any]:
    """How many versions there are."""
    span = await realm.send(space_id, ReadVersionSpan(ref=branch.ref), context)
    return {
        "type": "HistoryStatisticsResponse",
        "minVersion": {"value": span.min_version, "estimated": False},
        "maxVersion": {"value": span.max_version, "estimated": False},
    }
