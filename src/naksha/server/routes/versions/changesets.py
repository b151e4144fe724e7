"""Changesets of a space: the changes of each version."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal
from urllib.parse import unquote

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from naksha.hub.config.objects import Space
from naksha.hub.pipeline.version_requests import (
    ForgetVersions,
    ReadChangesets,
    ReadDiff,
    ReadLog,
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
from naksha.server.responses.encoding import streaming_response
from naksha.server.responses.version_json import (
    changeset_bytes,
    changesets_bytes,
    log_json,
    squashed_bytes,
)
from naksha.server.routing.declarations import QueryParam, Router
from naksha.versioning.version_refs import MAIN_BRANCH

router = Router(prefix="/hub/spaces/{space_id}", tags=["versions"])

CHANGESET: Final = "application/vnd.here.changeset"
CHANGESETS: Final = "application/vnd.here.changeset-collection"
_COMPACT: Final = "application/vnd.here.compact-changeset"
MISSING: Final = "The requested resource does not exist."
"""Do not change this text: XYZ clients compare it literally."""
_OLDER: Final = re.compile(r"version(?:<|=lt=)([0-9]{1,18})")


class ChangesetParameters(RefParameters, ChangeFilterParameters):
    """Filter and page of changesets."""

    version_ref: str = Field(
        "",
        alias="versionRef",
        description="The branch. Default: main.",
        max_length=limits.VERSION_REF_LENGTH_MAX,
    )
    page_token: str = Field(
        "",
        alias="pageToken",
        max_length=limits.FEED_POSITION_LENGTH_MAX,
        description="The `nextPageToken` of the previous page.",
    )
    limit: Limit = limits.PAGE_DEFAULT
    operation: list[Literal["I", "U", "D"]] = Field(
        [], description="Only inserted (I), updated (U) or deleted (D) features."
    )

    def read(self, request: Request, ref: str, *, single: bool = False) -> ReadChangesets:
        """Build the request for a range of versions, or for a single one."""
        actions = tuple(_ACTIONS[letter] for letter in self.operation) or None
        return ReadChangesets(
            ref=ref,
            single=single,
            after=self.page_token,
            limit=self.limit,
            features=self.query(request, actions=actions),
        )


class LogParameters(ChangesetParameters):
    """Range of versions."""

    version_ref: str = Field(
        "",
        alias="versionRef",
        description="A range such as `3..9` (after version 3, up to and including version 9), or a "
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
        description="The last version of a range; may be in the future.",
    )
    squashed: bool = Field(
        False,
        description="Return every feature once, in its final state, without paging.",
    )

    @property
    def ref(self) -> str:
        """The range; `startVersion` and `endVersion` are both inclusive."""
        start, end = self.start_version, self.end_version
        if start is None and end is None:
            return super().ref
        if super().ref:
            raise InvalidArgument(
                'Parameter "versionRef" cannot be combined with startVersion and endVersion',
                field="versionRef",
            )
        if start is not None and end is not None and start > end:
            raise InvalidArgument(
                f"endVersion {end} is before startVersion {start}", field="endVersion"
            )
        # Larger numbers are interpreted as transactions.
        first, last = (min(number or 0, SEQ_NUMBER_LIMIT - 1) for number in (start, end))
        return f"{max(0, first - 1)}..{'HEAD' if end is None else last}"

    def difference(self, request: Request) -> ReadDiff:
        """Build the request for the range as a whole."""
        return ReadDiff(ref=self.ref, query=self.query(request), of_log=True)


Log = Annotated[LogParameters, QueryParam()]


class BranchLogParameters(RefParameters, ChangeFilterParameters):
    """Filter and page of the log."""

    version_ref: str = Field(
        "",
        alias="versionRef",
        description="The branch. Default: main.",
        max_length=limits.VERSION_REF_LENGTH_MAX,
    )
    text: str | None = Field(
        None,
        min_length=1,
        max_length=limits.LOG_TEXT_LENGTH_MAX,
        description="Only changesets whose message contains this text, ignoring case.",
    )
    newest_first: bool = Field(True, alias="newestFirst", description="Whether to read backwards.")
    page_token: int = Field(
        0,
        alias="pageToken",
        ge=0,
        lt=SEQ_NUMBER_LIMIT,
        description="The `nextPageToken` of the previous page.",
    )
    limit: int = Field(
        limits.CHANGESET_PAGE_DEFAULT,
        ge=1,
        le=limits.CHANGESET_PAGE_MAX,
        description="Maximum number of changesets to return.",
    )


class OnBranchParameters(RefParameters):
    """The branch whose versions are counted."""

    version_ref: str = Field(
        "",
        alias="versionRef",
        description="The branch. Default: main.",
        max_length=limits.VERSION_REF_LENGTH_MAX,
    )


OnBranch = Annotated[OnBranchParameters, QueryParam()]
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


_COLLECTION: Final = documents.returns(
    "The changes.",
    {"oneOf": [documents.CHANGESETS, documents.SQUASHED]},
    CHANGESETS,
    CHANGESET,
)
_HISTORY: Final = documents.returns(
    "The changes.", {"oneOf": [documents.CHANGESETS, documents.SQUASHED]}, CHANGESETS, _COMPACT
)


@router.get("/changesets", responses=_COLLECTION, openapi_extra=PROPERTY_QUERY)
async def read_changesets(
    space_id: str, request: Request, parameters: Log, realm: RealmDep, context: Ctx
) -> Response:
    """Return the changes of a range of versions."""
    if parameters.squashed:
        found = await realm.send(space_id, parameters.difference(request), context)
        return streaming_response(
            squashed_bytes(found, "Changeset", parameters.operation), CHANGESET
        )
    page = await realm.send(space_id, parameters.read(request, parameters.ref), context)
    return _collection(page)


def _collection(page: Changesets) -> Response:
    if page.is_empty:
        raise VersionNotFound(MISSING, field="versionRef")
    return streaming_response(changesets_bytes(page), CHANGESETS)


@router.get(
    "/log",
    responses=documents.returns("The changesets.", documents.CHANGESET_LOG),
    openapi_extra=PROPERTY_QUERY,
)
async def read_log(
    space_id: str,
    request: Request,
    parameters: Annotated[BranchLogParameters, QueryParam()],
    realm: RealmDep,
    context: Ctx,
) -> dict[str, Any]:
    """Return the changesets of a branch without their features, newest first.

    Each has its author, time, message, numbers of changed features and the box around them.
    """
    read = ReadLog(
        ref=parameters.ref,
        after=parameters.page_token,
        limit=parameters.limit,
        newest_first=parameters.newest_first,
        text=parameters.text,
        features=parameters.query(request),
    )
    return log_json(await realm.send(space_id, read, context))


@router.get(
    "/changesets/statistics",
    responses=documents.returns("The versions.", documents.CHANGESET_STATISTICS),
)
async def changeset_statistics(
    space_id: str, realm: RealmDep, context: Ctx, branch: OnBranch
) -> dict[str, Any]:
    """Return the oldest and the newest version."""
    span = await realm.send(space_id, ReadVersionSpan(ref=branch.ref), context)
    return {
        "type": "ChangesetsStatisticsResponse",
        "minVersion": span.min_version,
        "maxVersion": span.max_version,
    }


@router.get(
    "/changesets/{version}",
    responses=documents.returns("The changes of the version.", documents.CHANGESET, CHANGESET),
    openapi_extra=PROPERTY_QUERY,
)
async def read_changeset(
    space_id: str,
    version: int,
    request: Request,
    parameters: Annotated[ChangesetParameters, QueryParam()],
    realm: RealmDep,
    context: Ctx,
) -> Response:
    """Return the changes of one version."""
    if not 1 <= version <= limits.INT8_MAX:
        raise InvalidArgument(
            f"Version {version} is out of range: versions are 1..{limits.INT8_MAX}", field="version"
        )
    name = parameters.ref.partition(":")[0] or MAIN_BRANCH
    read = parameters.read(request, f"{name}:{version}", single=True)
    page = await realm.send(space_id, read, context)
    if not page.changesets:
        raise VersionNotFound(MISSING, field="version")
    return streaming_response(changeset_bytes(page.changesets[0], page.after), CHANGESET)


@router.delete(
    "/changesets",
    status_code=204,
    responses=documents.removes("Removed."),
    openapi_extra=_OLDER_THAN,
)
async def forget_changesets(
    space_id: str, request: Request, realm: RealmDep, context: Ctx
) -> Response:
    """Remove versions before a given one: `?version<N` or `?version=lt=N`.

    This space can no longer read them; the collection itself keeps its history according to its
    `maxAge`.
    """
    version = _older_than(request.url.query)
    await realm.send(space_id, ForgetVersions(older_than=version), context)
    await realm.registry.change(
        Space, space_id, lambda space: space.without_versions_before(version), context.actor
    )
    return Response(status_code=204)


def _older_than(query: str) -> int:
    """Parse `version<N`, in any URL encoding."""
    found = [_OLDER.fullmatch(unquote(part)) for part in query.split("&")]
    versions = [int(match[1]) for match in found if match is not None]
    if len(versions) != 1 or versions[0] < 1:
        raise InvalidArgument(
            'Parameter "version" is missing or invalid: pass the first version to keep, as in '
            "?version<7 or ?version=lt=7",
            field="version",
        )
    return versions[0]


@router.get("/history", responses=_HISTORY, openapi_extra=PROPERTY_QUERY)
async def read_history(
    space_id: str, request: Request, parameters: Log, realm: RealmDep, context: Ctx
) -> Response:
    """Return changesets, under the deprecated path.

    The `Accept` header selects changesets or a compact changeset, in which every feature occurs
    once.
    """
    if _COMPACT in request.headers.get("Accept", ""):
        found = await realm.send(space_id, parameters.difference(request), context)
        compact = squashed_bytes(found, "CompactChangeset", parameters.operation)
        return streaming_response(compact, _COMPACT)
    page = await realm.send(space_id, parameters.read(request, parameters.ref), context)
    return _collection(page)


@router.get(
    "/history/statistics",
    responses=documents.returns("The versions.", documents.HISTORY_STATISTICS),
)
async def history_statistics(
    space_id: str, realm: RealmDep, context: Ctx, branch: OnBranch
) -> dict[str, Any]:
    """Return the oldest and the newest version."""
    span = await realm.send(space_id, ReadVersionSpan(ref=branch.ref), context)
    return {
        "type": "HistoryStatisticsResponse",
        "minVersion": {"value": span.min_version, "estimated": False},
        "maxVersion": {"value": span.max_version, "estimated": False},
    }
