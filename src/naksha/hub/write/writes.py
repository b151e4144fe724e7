"""WriteFeatures: all modifications of a request in one transaction."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Final

import msgspec

from naksha.hub.pipeline.request_context import RequestContext
from naksha.hub.pipeline.requests import IfNotExists, WriteFeatures
from naksha.hub.pipeline.responses import Written
from naksha.hub.pipeline.targets import CollectionTarget
from naksha.hub.subscriptions.delivery_fence import pass_fence
from naksha.hub.write.entries import PreparedWrite, plain_entries, prepare_write
from naksha.hub.write.failures import Failures
from naksha.hub.write.guards import WritePermissions
from naksha.hub.write.modifications import ModificationWriter
from naksha.hub.write.namespaces import TagChange
from naksha.hub.write.open_collection import open_collection
from naksha.hub.write.reports import Report
from naksha.hub.write.rules import Rules
from naksha.hub.write.written_line import WrittenLine, base_states, on_line
from naksha.model import limits
from naksha.model.state import State
from naksha.spi.storage import WriteSession
from naksha.versioning.changesets import MESSAGE

_NO_STATES: Final[Mapping[str, State]] = {}


async def write_features(
    target: CollectionTarget, request: WriteFeatures, context: RequestContext, space_id: str
) -> Written:
    """Carry out all modifications; each sees the effects of those before it.

    An error names its feature by id, position and field wherever possible. With `transactional`
    the first error ends the request and nothing is written. Otherwise each error becomes a
    `Failure`, and the first one is raised, with all of them as `failures`, only when every feature
    failed.
    """
    prepared = prepare_write(request, target.dateline)
    tags = TagChange(request.add_tags, request.remove_tags)

    async def write(line: WrittenLine) -> Written:
        return await _Write(target, request, prepared, tags, line, context).run(space_id)

    written = await on_line(target, request.ref, write)
    if written.txn is None:
        return written
    return msgspec.structs.replace(written, version=await published_version(target, written.txn))


async def is_first_delivery(session: WriteSession, request: WriteFeatures) -> bool:
    """Whether to carry out a request: False for a delivery that was written before.

    Call it once per transaction, since it records the delivery.

    Raises:
        Fenced: The delivery comes too late.
    """
    return request.fence is None or await pass_fence(session, request.fence)


async def write_in_session(
    session: WriteSession,
    target: CollectionTarget,
    request: WriteFeatures,
    context: RequestContext,
    space_id: str,
) -> Written:
    """Write on main within the caller's transaction; the version is still unknown.

    The caller checks `is_first_delivery` first.
    """
    tags = TagChange(request.add_tags, request.remove_tags)
    line = WrittenLine(target.storage, is_main=True, base=None)
    write = _Write(target, request, prepare_write(request, target.dateline), tags, line, context)
    return await write.attempt(session, space_id)


async def published_version(target: CollectionTarget, txn: int) -> int | None:
    """Return the version of a transaction, if it is published within the time limit."""
    version = await target.storage.wait_published(txn, limits.PUBLISH_WAIT_SECONDS)
    return None if version is None else version.seq_number


class _Write:
    """One write to one line. It may be attempted several times until no other writer interferes."""

    def __init__(
        self,
        target: CollectionTarget,
        request: WriteFeatures,
        prepared: PreparedWrite,
        tags: TagChange,
        line: WrittenLine,
        context: RequestContext,
    ) -> None:
        self._target = target
        self._request = request
        self._prepared = prepared
        self._tags = tags
        self._line = line
        self._context = context
        self._permissions = WritePermissions(context)
        self._attempts = itertools.count()
        self._base_states: Mapping[str, State] = _NO_STATES
        self._creates = any(
            batch.rules.if_not_exists is IfNotExists.CREATE and batch.rules.features
            for batch in prepared.batches
        )

    async def run(self, space_id: str) -> Written:
        """Carry out the write; the version is still unknown."""
        if self._line.base is not None:
            self._base_states = await base_states(self._line.base, self._prepared)

        async def work(session: WriteSession) -> Written:
            if not await is_first_delivery(session, self._request):
                return Written()
            written = await self.attempt(session, space_id, commit=True)
            if written.inserted:
                await self._permissions.check_count(session, [self._target.collection.id])
            return written

        actor = self._context.actor
        return await self._line.storage.run(work, actor.app_id, actor.author)

    async def attempt(
        self, session: WriteSession, space_id: str, *, commit: bool = False
    ) -> Written:
        """Carry out the whole write in a session.

        With `commit` the last change commits it, if nothing has to be done after that.
        """
        may_create = self._creates and self._line.is_main
        info = await open_collection(session, self._target, may_create=may_create)
        has_failed_locks = next(self._attempts) >= limits.RETRY_GATE_COUNT
        is_counted = self._creates and self._permissions.are_counted
        if info is not None and (has_failed_locks or is_counted):
            # From here on other writers are locked out, so locks on what is read cannot fail.
            await session.close_gates([info.id])
        report = Report()
        failures = Failures(self._request.transactional, self._prepared.errors)
        writer = ModificationWriter(
            session,
            report,
            failures,
            self._permissions,
            returning=self._request.returning,
            is_json=self._context.is_json,
        )
        count = len(failures.errors)
        if self._request.message is not None:
            await session.message(MESSAGE, self._request.message, if_changed=True)
        may_commit = commit and not is_counted
        last = len(self._prepared.batches) - 1
        for position, batch in enumerate(self._prepared.batches):
            rules = Rules(
                batch.rules,
                self._tags,
                self._request.conflict_detection or self._line.base is not None,
                self._target.storage.identity,
                info,
            )
            entries = plain_entries(batch.entries, None if info is None else info.id_prefix)
            count += len(entries)
            await writer.write(
                rules, entries, self._base_states, commit=may_commit and position == last
            )
        failures.check_any_left(count)
        return report.written(space_id, session.txn, failures.reported(), self._prepared.notices)
