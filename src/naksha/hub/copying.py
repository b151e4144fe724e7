"""The result of a query is copied into another space, on the server.

Features run through both pipelines, with the rights of who asks: he must be allowed to read the one
and to write the other. They are read as they come and written in parts, so that a copy of any size
needs the memory of one part. What fits into one part is one transaction. The time of a request is
that of a part: whoever waits sees each of them done, so that a copy may take as long as it likes.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeVar

import msgspec

from naksha.hub.config.provenance import add_provenance
from naksha.hub.config.registry import Realm
from naksha.hub.pipeline.request_context import Context
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
TOOL: Final = "copy"
_KEPT: Final = ("tags", "crid")
"""What a feature takes along from the namespace; the rest tells of its life in the source."""


class CopyOrder(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is to be copied where, and what is done with features that are there."""

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
    """All with one transaction or nothing; else what is right is written, and the rest reported."""
    message: str | None = None
    said: str = ""
    """The query as it was asked, for the provenance."""


class CopiedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction on the target."""

    features: int
    txn: str | None
    version: int | None


class CopyReport(msgspec.Struct, kw_only=True, rename="camel"):
    """What a copy did. `failed` names the first of the failures, `failed_count` is all of them; of
    notices and violations, too, the first are given."""

    source_space_id: str
    target_space_id: str
    source_version: int | None = None
    """The last version of the source that was published when the copy began."""
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
        """Count what was done with a part."""
        at = self.read
        self.read += len(part)
        self.inserted += len(written.inserted)
        self.updated += len(written.updated)
        self.deleted += len(written.deleted)
        self.retained += len(written.retained)
        self.failed_count += len(written.failed)
        _extend(self.failed, [_placed(failure, at) for failure in written.failed])
        _extend(self.notices, [_placed(notice, at) for notice in written.notices])
        _extend(self.violations, written.violations)
        txn = None if written.txn is None else str(written.txn)
        self.parts.append(CopiedPart(features=len(part), txn=txn, version=written.version))

    def counts(self) -> dict[str, int]:
        """For the provenance of the target."""
        names = ("read", "inserted", "updated", "deleted", "retained")
        return {name: getattr(self, name) for name in names} | {"failed": self.failed_count}


def _not_prolonged(context: Context) -> Context:
    return context


class Copy:
    """One copy. After an error `report` has what was done until then."""

    def __init__(
        self,
        realm: Realm,
        source_id: str,
        order: CopyOrder,
        context: Context,
        prolonged: Callable[[Context], Context] = _not_prolonged,
    ) -> None:
        """`prolonged` gives the context, and whoever waits, time for one part more."""
        self._realm = realm
        self._order = order
        self._context = context
        self._prolonged = prolonged
        self._refusal: NakshaError | None = None
        self.report = CopyReport(source_space_id=source_id, target_space_id=order.target_space_id)

    async def run(self) -> CopyReport:
        """Copy all of it, as `steps` does."""
        async with aclosing(self.steps()) as steps:
            async for _ in steps:
                pass
        return self.report

    async def steps(self) -> AsyncGenerator[CopyReport, None]:
        """Copy all of it; gives the report after each part, and when it is complete.

        Raises:
            NakshaError: Nothing was copied, for example because none of the features can be; or
                something was, then the report says what.
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
                f"One transaction copies at most {limits.COPY_PART_FEATURES} features and "
                f"{limits.COPY_PART_BYTES} bytes; ask for less, or without transactional",
                field="transactional",
            )

    async def _parts(self) -> AsyncGenerator[list[dict[str, Any]], None]:
        read = ReadFeatures(
            query=self._order.query, ref=self._order.ref, context=self._order.context
        )
        answer = await self._realm.send(self.report.source_space_id, read, self._context)
        try:
            part: list[dict[str, Any]] = []
            size = 0
            async for states in answer:
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
            await answer.aclose()

    async def _write(self, part: list[dict[str, Any]]) -> None:
        order = self._order
        self._context = self._prolonged(self._context)
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
            return None  # not every space has versions; what is wrong is told by reading
        return None if found is None else found.seq_number

    async def _note(self) -> None:
        entry: dict[str, Any] = {
            "source": f"space:{self.report.source_space_id}",
            "tool": TOOL,
            "counts": self.report.counts(),
            "isComplete": self.report.is_complete,
        }
        if self.report.source_version is not None:
            entry["version"] = self.report.source_version
        if self._order.said:
            shortened = self._order.said.encode()[: limits.PROVENANCE_BYTES_MAX // 4]
            entry["query"] = shortened.decode(errors="ignore")
        target = self._order.target_space_id
        try:
            await add_provenance(self._realm, target, entry, self._context.actor)
        except NakshaError as error:
            _log.warning("The copy into %s is not noted there: %s", target, error)


def _plain(state: State) -> dict[str, Any]:
    """A feature as one that was not stored yet; the state may be read by others too."""
    feature = state.feature
    properties = dict(feature.get("properties") or {})
    namespace = properties.pop(XYZ, None) or {}
    kept = {name: namespace[name] for name in _KEPT if namespace.get(name)}
    if kept:
        properties[XYZ] = kept
    return {**feature, "properties": properties}


def _extend(told: list[T], more: Sequence[T]) -> None:
    """Tell more, as long as it is not too much."""
    told += more[: max(limits.COPY_FAILURES_MAX - len(told), 0)]


def _placed(told: P, at: int) -> P:
    """The same with its place among all features of the copy."""
    if told.position is None:
        return told
    return msgspec.structs.replace(told, position=told.position + at)
