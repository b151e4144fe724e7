"""The log of a space: what was changed by which version."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal
from urllib.parse import unquote

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from naksha.hub.objects import Space
from naksha.hub.version_requests import ForgetVersions, ReadChangesets, ReadDiff, ReadVersionSpan
from naksha.model import limits
from naksha.model.errors import InvalidArgument, VersionNotFound
from naksha.model.version import AtSeq
from naksha.server import version_documents as documents
from naksha.server.answers import streamed
from naksha.server.state import Ctx, RealmDep
from naksha.server.version_json import changeset_bytes, changesets_bytes, squashed_bytes
from naksha.versioning.refs import MAIN_BRANCH, One, parse_ref

router = APIRouter(prefix="/hub/spaces/{space_id}", tags=["versions"])

CHANGESET: Final = "application/vnd.here.changeset"
CHANGESETS: Final = "application/vnd.here.changeset-collection"
COMPACT: Final = "application/vnd.here.compact-changeset"
_OLDER: Final = re.compile(r"version(?:<|=lt=)([0-9]{1,18})")


class LogParameters(BaseModel):
    """Which part of the log."""

    model_config = ConfigDict(populate_by_name=True, frozen=True)

    version_ref: str = Field("", alias="versionRef", description="A range such as `3..9`.")
    start_version: int | None = Field(None, alias="startVersion", ge=0, deprecated=True)
    end_version: int | None = Field(None, alias="endVersion", ge=0, deprecated=True)
    page_token: str = Field("", alias="pageToken", pattern="^[0-9]{0,18}$")
    limit: int = Field(limits.PAGE_DEFAULT, ge=1, le=limits.PAGE_MAX)
    author: str = Field("", description="Authors, with commas between them.")
    start_time: int | None = Field(None, alias="startTime", ge=0, le=limits.INT8_MAX)
    end_time: int | None = Field(None, alias="endTime", ge=0, le=limits.INT8_MAX - 1)
    squashed: bool = Field(
        False,
        description="Every feature once, as it was in the end: all of the range, in one answer.",
    )
    operation: list[Literal["I", "U", "D"]] = Field(
        [], description="Only what was inserted, updated or deleted."
    )

    @property
    def ref(self) -> str:
        """The range; the older parameters include both of their ends."""
        if self.start_version is None and self.end_version is None:
            return self.version_ref
        if self.version_ref:
            raise InvalidArgument(
                "startVersion and endVersion are not given together with it", field="versionRef"
            )
        first = max(0, (self.start_version or 0) - 1)
        return f"{first}..{'HEAD' if self.end_version is None else self.end_version}"

    @property
    def is_about_one(self) -> bool:
        """Whether one version is asked for, not a range."""
        if self.start_version is not None:
            return self.start_version == self.end_version
        parsed = parse_ref(self.version_ref)
        return isinstance(parsed, One) and isinstance(parsed.point, AtSeq)

    def difference(self) -> ReadDiff:
        """What is asked of the space when all is to be told together. Who changed a feature in
        between, and when, cannot be told of that any more."""
        for field, given in (
            ("author", self.author),
            ("startTime", self.start_time),
            ("endTime", self.end_time),
        ):
            if given not in (None, ""):
                raise InvalidArgument("It is not known of changes put together", field=field)
        return ReadDiff(ref=self.ref)

    def request(self) -> ReadChangesets:
        """What is asked of the space."""
        return ReadChangesets(
            ref=self.ref,
            after=int(self.page_token or 0),
            authors=tuple(filter(None, self.author.split(","))) or None,
            from_ms=None if self.start_time is None else self.start_time + 1,
            to_ms=None if self.end_time is None else self.end_time + 1,
            limit=self.limit,
            operations=frozenset(self.operation),
        )


Log = Annotated[LogParameters, Query()]
OnBranch = Annotated[
    str,
    Query(
        alias="versionRef",
        description="The branch; main unless given.",
        max_length=limits.VERSION_REF_LENGTH_MAX,
    ),
]


_COLLECTION: Final = documents.answers(
    "What was changed.",
    {"oneOf": [documents.CHANGESETS, documents.CHANGESET, documents.SQUASHED]},
    CHANGESETS,
    CHANGESET,
)
_HISTORY: Final = documents.answers(
    "What was changed.", {"oneOf": [documents.CHANGESETS, documents.SQUASHED]}, CHANGESETS, COMPACT
)


@router.get("/changesets", response_class=Response, responses=_COLLECTION)
async def read_changesets(
    space_id: str, parameters: Log, realm: RealmDep, context: Ctx
) -> Response:
    """What was changed, by which version; one version alone is answered as a Changeset."""
    if parameters.squashed:
        found = await realm.send(space_id, parameters.difference(), context)
        return streamed(squashed_bytes(found, "Changeset", parameters.operation), CHANGESET)
    page = await realm.send(space_id, parameters.request(), context)
    if parameters.is_about_one and len(page.changesets) == 1:
        only = changeset_bytes(page.changesets[0], page.after)
        return streamed(only, CHANGESET)
    return streamed(changesets_bytes(page), CHANGESETS)


@router.get(
    "/changesets/statistics",
    response_model=None,
    responses=documents.answers("Versions.", documents.CHANGESET_STATISTICS),
)
async def changeset_statistics(
    space_id: str, realm: RealmDep, context: Ctx, branch: OnBranch = ""
) -> dict[str, Any]:
    """The oldest and the newest version."""
    span = await realm.send(space_id, ReadVersionSpan(ref=branch), context)
    return {
        "type": "ChangesetsStatisticsResponse",
        "minVersion": span.min_version,
        "maxVersion": span.max_version,
    }


@router.get(
    "/changesets/{version}",
    response_class=Response,
    responses=documents.answers("What it changed.", documents.CHANGESET, CHANGESET),
)
async def read_changeset(
    space_id: str, version: int, realm: RealmDep, context: Ctx, branch: OnBranch = ""
) -> Response:
    """What one version changed."""
    if not 1 <= version <= limits.INT8_MAX:
        raise InvalidArgument("A version is at least 1", field="version")
    name = branch.partition(":")[0] or MAIN_BRANCH
    page = await realm.send(space_id, ReadChangesets(ref=f"{name}:{version}"), context)
    if not page.changesets:
        raise VersionNotFound(f"Version {version} changed nothing in this space", field="version")
    return streamed(changeset_bytes(page.changesets[0]), CHANGESET)


@router.delete("/changesets", status_code=204, responses=documents.removes("They are gone."))
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


@router.get("/history", response_class=Response, responses=_HISTORY)
async def read_history(
    space_id: str, request: Request, parameters: Log, realm: RealmDep, context: Ctx
) -> Response:
    """The older form of `changesets`; what is accepted decides between all of them and what they
    come to together."""
    if COMPACT in request.headers.get("Accept", ""):
        found = await realm.send(space_id, parameters.difference(), context)
        compact = squashed_bytes(found, "CompactChangeset", parameters.operation)
        return streamed(compact, COMPACT)
    page = await realm.send(space_id, parameters.request(), context)
    return streamed(changesets_bytes(page), CHANGESETS)


@router.get(
    "/history/statistics",
    response_model=None,
    responses=documents.answers("Versions.", documents.HISTORY_STATISTICS),
)
async def history_statistics(
    space_id: str, realm: RealmDep, context: Ctx, branch: OnBranch = ""
) -> dict[str, Any]:
    """How many versions there are."""
    span = await realm.send(space_id, ReadVersionSpan(ref=branch), context)
    return {
        "type": "HistoryStatisticsResponse",
        "minVersion": {"value": span.min_version, "estimated": False},
        "maxVersion": {"value": span.max_version, "estimated": False},
    }
