"""Server-side copy of a query's result into another space.

Features run through both pipelines with the rights of the actor, who must be allowed to read the
source and to write the target. They are streamed and written in parts, so a copy of any size needs
the memory of one part. Each part is one transaction. The request timeout applies to each part, and
the client sees the progress after each, so a copy can take any time.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeVar

import msgspec

from naksha.hub.config.provenance import add_provenance
from naksha.hub.config.registry import ConfiguredRealm
from naksha.hub.pipeline.request_context import RequestContext
from naksha.hub.pipeline.requests import (
    MATCH_ALL,
    GetVersion,
    IfExists,
    IfNotExists,
    Modification,
    ReadFeatures,
    WriteFeatures,
)
from naksha.hub.pipeline.responses import Failure, Notice, Written
from naksha.model import limits
from naksha.model.errors import LimitExceeded, NakshaError
from naksha.model.query import Query
from naksha.model.state import XYZ, State

T = TypeVar("T")
P = TypeVar("P", Failure, Notice)
_log: Final = logging.getLogger(__name__)
_TOOL: Final = "copy"
_KEPT: Final = ("tags", "crid")
"""Namespace members that are copied; the others describe the feature's history in the source."""


class CopySpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Parameters of a copy: source query, target, and actions for existing features."""

    target_space_id: str
    query: Query = MATCH_ALL
    ref: str = ""
    context: str = "default"
    if_exists: IfExists = IfExists.REPLACE
    if_not_exists: IfNotExists = IfNotExists.CREATE
    prefix_id: str = ""
    add_tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()
    transactional: bool = False
    """Copy all in one transaction or nothing; else write valid features and report the others."""
    message: str | None = None
    query_text: str = msgspec.field(default="", name="said")
    """The query string of the request, for the provenance."""


class CopiedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction in the target."""

    features: int
    txn: str | None
    version: int | None


class CopyReport(msgspec.Struct, kw_only=True, rename="camel"):
    """Result of a copy.

    `failed` lists the first failures and `failed_count` counts all; notices and violations are
    limited to the first ones, too.
    """

    source_space_id: str
    target_space_id: str
    source_version: int | None = None
    """The last published version of the source when the copy began."""
    read: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    retained: int = 0
    failed_count: int = 0
    failed: list[Failure] = []
    notices: list[Notice] = []
    violations: list[dict[str, Any]] = []
    parts: list[CopiedPart] = []
    is_complete: bool = False

    def add(self, part: list[dict[str, Any]], written: Written) -> None:
        """Add the result of a part."""
        at = self.read
        self.read += len(part)
        self.inserted += len(written.inserted)
        self.updated += len(written.updated)
        self.deleted += len(written.deleted)
        self.retained += len(written.retained)
        self.failed_count += len(written.failed)
        _extend(self.failed, [_shifted(failure, at) for failure in written.failed])
        _extend(self.notices, [_shifted(notice, at) for notice in written.notices])
        _extend(self.violations, written.violations)
        txn = None if written.txn is None else str(written.txn)
        self.parts.append(CopiedPart(features=len(part), txn=txn, version=written.version))

    def counts(self) -> dict[str, int]:
        """Return the counts for the provenance of the target."""
        names = ("read", "inserted", "updated", "deleted", "retained")
        return {name: getattr(self, name) for name in names} | {"failed": self.failed_count}


class CopyOperation:
    """A copy operation. After an error, `report` contains what was done until then."""

    def __init__(
        self,
        realm: ConfiguredRealm,
        source_id: str,
        order: CopySpec,
        context: RequestContext,
        renewed: Callable[[], Awaitable[RequestContext]] | None = None,
    ) -> None:
        """`renewed` resolves the request again for one more part, with a new deadline."""
        self._realm = realm
        self._order = order
        self._context = context
        self._renewed = renewed
        self._refusal: NakshaError | None = None
        self.report = CopyReport(source_space_id=source_id, target_space_id=order.target_space_id)

    async def run(self) -> CopyReport:
        """Copy everything and return the report."""
        async with aclosing(self.steps()) as steps:
            async for _ in steps:
                pass
        return self.report

    async def steps(self) -> AsyncGenerator[CopyReport, None]:
        """Copy everything; yield the report after each part and at the end.

        Raises:
            NakshaError: The copy failed, for example because no feature could be written. The
                report says what was copied before, if anything.
        """
        self.report.source_version = await self._source_version()
        try:
            waiting: list[dict[str, Any]] | None = None
            async with aclosing(self._parts()) as parts:
                async for part in parts:
                    if waiting is not None:
                        self._check_one_transaction()
                        await self._write(waiting)
                        yield self.report
                    waiting = part
            if waiting:
                await self._write(waiting)
            if self._refusal is not None and self.report.failed_count == self.report.read:
                raise self._refusal
            self.report.is_complete = True
        finally:
            if self.report.parts:
                await self._note()
        yield self.report

    def _check_one_transaction(self) -> None:
        if self._order.transactional:
            raise LimitExceeded(
                f"A transactional copy is limited to {limits.COPY_PART_FEATURES} features and "
                f"{limits.COPY_PART_BYTES} bytes; copy less, or set transactional to false",
                field="transactional",
            )

    async def _parts(self) -> AsyncGenerator[list[dict[str, Any]], None]:
        read = ReadFeatures(
            query=self._order.query, ref=self._order.ref, context=self._order.context
        )
        response = await self._realm.send(self.report.source_space_id, read, self._context)
        try:
            part: list[dict[str, Any]] = []
            size = 0
            async for states in response:
                for state in states:
                    size += len(state.raw)
                    is_full = len(part) == limits.COPY_PART_FEATURES
                    if part and (is_full or size > limits.COPY_PART_BYTES):
                        yield part
                        part, size = [], len(state.raw)
                    part.append(_plain(state))
            if part:
                yield part
        finally:
            await response.aclose()

    async def _write(self, part: list[dict[str, Any]]) -> None:
        order = self._order
        if self._renewed is not None:
            self._context = await self._renewed()
        write = WriteFeatures(
            modifications=(
                Modification(
                    features=tuple(part),
                    if_exists=order.if_exists,
                    if_not_exists=order.if_not_exists,
                ),
            ),
            transactional=order.transactional,
            prefix_id=order.prefix_id,
            add_tags=order.add_tags,
            remove_tags=order.remove_tags,
            message=order.message,
            returning=False,
        )
        try:
            written = await self._realm.send(order.target_space_id, write, self._context)
        except NakshaError as error:
            if order.transactional or not error.failures:
                raise
            # None of these features could be written; others may.
            self._refusal = error
            written = Written(failed=tuple(error.failures))
        self.report.add(part, written)

    async def _source_version(self) -> int | None:
        try:
            found = await self._realm.send(
                self.report.source_space_id,
                GetVersion(ref=self._order.ref, published=True),
                self._context,
            )
        except NakshaError:
            return None  # not every space has versions; reading reports other errors
        return None if found is None else found.seq_number

    async def _note(self) -> None:
        entry: dict[str, Any] = {
            "source": f"space:{self.report.source_space_id}",
            "tool": _TOOL,
            "counts": self.report.counts(),
            "isComplete": self.report.is_complete,
        }
        if self.report.source_version is not None:
            entry["version"] = self.report.source_version
        if self._order.query_text:
            shortened = self._order.query_text.encode()[: limits.PROVENANCE_BYTES_MAX // 4]
            entry["query"] = shortened.decode(errors="ignore")
        target = self._order.target_space_id
        try:
            await add_provenance(self._realm, target, entry, self._context.actor)
        except NakshaError as error:
            _log.warning(
                "The provenance of the copy into the space %s could not be recorded: %s",
                target,
                error,
            )


def _plain(state: State) -> dict[str, Any]:
    """Return the state's feature as a new one, leaving the shared state unchanged."""
    feature = state.feature
    properties = dict(feature.get("properties") or {})
    namespace = properties.pop(XYZ, None) or {}
    kept = {name: namespace[name] for name in _KEPT if namespace.get(name)}
    if kept:
        properties[XYZ] = kept
    return {**feature, "properties": properties}


def _extend(reported: list[T], more: Sequence[T]) -> None:
    """Append items up to the limit of the report."""
    reported += more[: max(limits.COPY_FAILURES_MAX - len(reported), 0)]


def _shifted(reported: P, at: int) -> P:
    """Shift the position from the part to the whole copy."""
    if reported.position is None:
        return reported
    return msgspec.structs.replace(reported, position=reported.position + at)
