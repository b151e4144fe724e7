"""Log, differences and history of a stored space."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from naksha.hub.pipeline import version_requests, version_responses
from naksha.hub.pipeline.pipeline import Event
from naksha.hub.pipeline.requests import MATCH_ALL
from naksha.hub.pipeline.responses import Features, with_first_read
from naksha.hub.pipeline.targets import CollectionTarget, ResolvedTarget, check_kept_by_owner
from naksha.model import limits
from naksha.model.errors import InvalidArgument, NotYetPublished, VersionNotFound
from naksha.model.query import Query, States
from naksha.model.state import State
from naksha.model.transaction import LogFilter
from naksha.model.version import HEAD, AtSeq
from naksha.versioning import (
    Changeset,
    CollectionEffect,
    FeedFilter,
    FeedPosition,
    FeedTransaction,
    Line,
    changesets,
    diff,
    history,
    parse_ref,
    read_feed,
)
from naksha.versioning.lines import RefResolver, line_of_branch
from naksha.versioning.log import check_kept
from naksha.versioning.records import Branch
from naksha.versioning.version_refs import (
    MAIN_BRANCH,
    AllRef,
    NamedRef,
    Point,
    RangeRef,
    Ref,
    SingleRef,
)

CHANGESETS_MAX: Final = 100
"""Maximum number of changesets in a response, however few features they have."""
BUFFERED_CHANGES_MAX: Final = 10_000
"""Maximum number of features in a response that is held in memory."""
_AFTER_FIELD: Final = "pageToken"


async def read_changesets(
    target: CollectionTarget, request: version_requests.ReadChangesets, event: Event
) -> version_responses.Changesets:
    """Return a part of the log of a branch."""
    # The changes of the oldest version are kept together with it.
    oldest = target.min_version - 1
    first, last = await _log_range(target, request.ref, oldest, single=request.single)
    start = FeedPosition(first.version.seq_number)
    if request.after:
        position = FeedPosition.parse(request.after, field=_AFTER_FIELD)
        start = position if position.seq_number >= start.seq_number else start
    found, after = await _changes_after(target, last, start, request, event.space.id)
    numbers = [each.changeset.version.seq_number for each in found]
    is_empty = not found and not request.after
    if is_empty and request.features != MATCH_ALL:
        is_empty = not (await _next_changes(target, last, start.seq_number))[0]
    return version_responses.Changesets(
        start_version=numbers[0] if numbers else start.seq_number + 1,
        end_version=numbers[-1] if numbers else last.version.seq_number,
        changesets=found,
        after=after,
        is_empty=is_empty,
    )


async def _changes_after(
    target: CollectionTarget,
    last: ResolvedTarget,
    start: FeedPosition,
    request: version_requests.ReadChangesets,
    space: str,
) -> tuple[list[version_responses.ChangedFeatures], str | None]:
    """Return some changesets after a position, and the position to continue from.

    Whole changesets are streamed; filtered ones, and parts of a changeset, are held in memory.
    """
    if start.seq_number >= last.version.seq_number:
        return [], None
    if request.features == MATCH_ALL and not start.within:
        found, has_more = await _next_changes(target, last, start.seq_number)
        chosen = _first_within(target, found, request.limit)
        if chosen or not found:
            await _check_readable(target, last.line, chosen)
            is_more = len(chosen) < len(found) or has_more
            token = str(chosen[-1].version.seq_number) if is_more else None
            return [_streamed_changes(target, last.line, each, space) for each in chosen], token
    return await _filtered_changes(target, last, start, request, space)


async def _check_readable(
    target: CollectionTarget, line: Line, chosen: Sequence[Changeset]
) -> None:
    """Raise Expired for expired features now, not in the middle of the response."""
    if chosen:
        oldest = AtSeq(chosen[0].version.seq_number)
        await line.storage.resolve(oldest, target.collection.id)


async def _filtered_changes(
    target: CollectionTarget,
    last: ResolvedTarget,
    start: FeedPosition,
    request: version_requests.ReadChangesets,
    space: str,
) -> tuple[list[version_responses.ChangedFeatures], str | None]:
    """Return the next matching changes: of at least one changeset, or a part of one."""
    where = FeedFilter.of(request.features, (target.collection.id,))
    while True:
        try:
            page = await read_feed(
                last.line,
                start,
                where,
                transactions_max=limits.FEED_TRANSACTIONS_MAX,
                features_max=min(request.limit, BUFFERED_CHANGES_MAX),
                until=last.version.seq_number,
                space=space,
            )
        except InvalidArgument as error:
            if start.within:
                error.field = _AFTER_FIELD
            raise
        gone = [item.changeset.version.seq_number for item in page.items if item.without_states]
        await check_kept(last.line, target.collection.id, gone)
        found = [_in_memory(item) for item in page.items if item.changes]
        start = page.position
        is_end = not start.within and start.seq_number >= last.version.seq_number
        if found or is_end:
            return found, None if is_end else str(start)


def _in_memory(item: FeedTransaction) -> version_responses.ChangedFeatures:
    def features(action: str) -> Features:
        return Features.of([each.state for each in item.changes if each.action == action])

    return version_responses.ChangedFeatures(
        item.changeset, features("CREATE"), features("UPDATE"), features("DELETE")
    )


async def _next_changes(
    target: CollectionTarget, last: ResolvedTarget, after: int
) -> tuple[list[Changeset], bool]:
    """Return the next changesets that changed features, and whether the log continues.

    Changesets that only created or configured the collection are left out.
    """
    where = LogFilter(collections=(target.collection.id,))
    while True:
        page = await changesets(
            last.line, where=where, after=after, limit=CHANGESETS_MAX, newest_first=False
        )
        inside = [each for each in page.changesets if each.version <= last.version]
        found = [each for each in inside if _features_changed(target, each) > 0]
        if page.after is None or len(inside) < len(page.changesets):
            return found, False
        if found:
            return found, True
        after = page.after


def _features_changed(target: CollectionTarget, changeset: Changeset) -> int:
    return sum(
        touched.created + touched.updated + touched.deleted
        for touched in changeset.touched
        if touched.collection == target.collection.id
    )


def _first_within(
    target: CollectionTarget, found: Sequence[Changeset], limit: int
) -> list[Changeset]:
    """Return the first changesets that have at most `limit` features together."""
    chosen: list[Changeset] = []
    for each in found:
        limit -= _features_changed(target, each)
        if limit < 0:
            break
        chosen.append(each)
    return chosen


def _streamed_changes(
    target: CollectionTarget, line: Line, found: Changeset, space: str
) -> version_responses.ChangedFeatures:
    if line.branch is not None:
        # Read at the base that the branch had at that time.
        line = line_of_branch(line.root, line.branch, line.branch.epoch_on(found.overlay))

    def features(action: str) -> Features:
        return Features(lambda _: _states_of(target, line, found, action, space))

    return version_responses.ChangedFeatures(
        found, features("CREATE"), features("UPDATE"), features("DELETE")
    )


async def _states_of(
    target: CollectionTarget, line: Line, found: Changeset, action: str, space: str
) -> AsyncIterator[Sequence[State]]:
    txn = found.version.txn
    query = Query(states=States.ALL, txn_from=txn, txn_to=txn + 1, actions=(action,), space=space)
    states: list[State] = []
    moment = AtSeq(found.version.seq_number)
    async for state in line.storage.states(target.collection.id, query, moment):
        states.append(state)
        if len(states) == limits.READ_CHUNK_FEATURES:
            yield states
            states = []
    if states:
        yield states


async def read_log(
    target: CollectionTarget, request: version_requests.ReadLog, event: Event
) -> version_responses.ChangesetLog:
    """Return a page of the log of a branch, without the changed features."""
    line = (await target.resolver().place(request.ref)).line
    where = LogFilter(collections=(target.collection.id,), text=request.text)
    # Versions that the owner of the space gave up are left out.
    oldest = max(0, target.min_version - 1)
    after = request.after if request.newest_first else max(request.after, oldest)
    entries: list[version_responses.LogEntry] = []
    while True:
        page = await changesets(
            line,
            where=where,
            query=request.features,
            after=after,
            limit=request.limit - len(entries),
            newest_first=request.newest_first,
        )
        kept = [each for each in page.changesets if each.version.seq_number > oldest]
        entries += [
            version_responses.LogEntry(each, effect)
            for each in kept
            if (effect := _effect_on(target, each)) is not None
        ]
        is_end = page.after is None or len(kept) < len(page.changesets)
        if is_end or len(entries) == request.limit:
            return version_responses.ChangesetLog(entries, None if is_end else page.after)
        assert page.after is not None
        after = page.after


def _effect_on(target: CollectionTarget, changeset: Changeset) -> CollectionEffect | None:
    """Return what a changeset did to the features of the collection; None if nothing."""
    if not _features_changed(target, changeset):
        return None
    name = target.collection.id
    return next(touched for touched in changeset.touched if touched.collection == name)


async def read_version_span(
    target: CollectionTarget, request: version_requests.ReadVersionSpan, event: Event
) -> version_responses.VersionSpan:
    """Return the oldest version that is kept and the newest one."""
    line = (await target.resolver().place(request.ref)).line
    where = LogFilter(collections=(target.collection.id,))
    last = (await changesets(line, where=where, limit=1)).changesets
    oldest = (await changesets(line, where=where, limit=1, newest_first=False)).changesets
    first = oldest[0].version.seq_number if oldest else 0
    return version_responses.VersionSpan(
        max(first, target.min_version), last[0].version.seq_number if last else 0
    )


async def forget_versions(
    target: CollectionTarget, request: version_requests.ForgetVersions, event: Event
) -> None:
    """Check that the versions to forget are published; the caller records the new minimum."""
    last = await target.storage.resolve(HEAD)
    if request.older_than > last.seq_number:
        raise NotYetPublished(
            f"Version {request.older_than} is not published yet; the last one is "
            f"{last.seq_number}; name a version up to that",
            field="version",
        )


async def read_diff(
    target: CollectionTarget, request: version_requests.ReadDiff, event: Event
) -> version_responses.Differences:
    """Return the features that differ between two versions."""
    if request.of_log:
        # The oldest remaining version is compared with its predecessor.
        old, new = await _log_range(target, request.ref, target.min_version - 1)
        if old.version == new.version:
            raise VersionNotFound(
                "The version range contains no changesets; use another range", field="versionRef"
            )
    elif request.other is None:
        old, new = await _range(target, request.ref, target.min_version)
    else:
        refs = target.resolver()
        old = ResolvedTarget.of(target, await refs.place(request.ref))
        new = ResolvedTarget.of(target, await refs.place(request.other))
    if not request.of_log:
        check_kept_by_owner(target, old.version.seq_number)
    query = msgspec.structs.replace(request.query, space=event.space.id)
    changes = await with_first_read(diff(old.place, new.place, target.collection.id, query))
    # A range of the log starts with the first version that it includes.
    start = old.version.seq_number + (1 if request.of_log else 0)
    return version_responses.Differences(start, new.version.seq_number, changes)


async def read_history(
    target: CollectionTarget, request: version_requests.ReadHistory, event: Event
) -> version_responses.FeatureHistory:
    """Return the history of features: each change with its author."""
    first, last = await _range(target, request.ref, target.min_version)
    check_kept_by_owner(target, first.version.seq_number)
    query = msgspec.structs.replace(request.query, space=event.space.id)
    steps = history(first.place, last.place, target.collection.id, query)
    return version_responses.FeatureHistory(await with_first_read(steps))


Range = tuple[ResolvedTarget, ResolvedTarget]


async def _range(target: CollectionTarget, ref: str, oldest: int) -> Range:
    """Return the range of a reference, by default everything on the branch since `oldest`."""
    refs = target.resolver()
    parsed = await _parsed_range(refs, ref)
    if isinstance(parsed, AllRef) and target.min_version:
        parsed = RangeRef(parsed.branch, AtSeq(oldest), HEAD)
    first, last = await refs.range(parsed)
    return ResolvedTarget.of(target, first), ResolvedTarget.of(target, last)


async def _log_range(
    target: CollectionTarget, ref: str, oldest: int, *, single: bool = False
) -> Range:
    """Return the range of the log that a reference means.

    One version means everything up to it, unless it is `single`. The end may be in the future, and
    a range that begins before the oldest version begins there.
    """
    refs = target.resolver()
    parsed = await _parsed_range(refs, ref)
    if isinstance(parsed, SingleRef) and not single:
        parsed = RangeRef(parsed.branch, AtSeq(0), parsed.point)
    if isinstance(parsed, RangeRef):
        parsed = await _clip_to_head(refs, parsed)
    first, last = await refs.range(parsed)
    if first.version > last.version:
        raise _reversed_range(first.version.seq_number, last.version.seq_number)
    check_kept_by_owner(target, last.version.seq_number)
    if first.version.seq_number < oldest:
        first = await refs.place(SingleRef(parsed.branch, AtSeq(oldest)))
    return ResolvedTarget.of(target, first), ResolvedTarget.of(target, last)


async def _clip_to_head(refs: RefResolver, log_range: RangeRef) -> RangeRef:
    """Cut a range at the last published version."""
    first, last = log_range.first, log_range.last
    if isinstance(first, AtSeq) and isinstance(last, AtSeq) and first.seq_number > last.seq_number:
        raise _reversed_range(first.seq_number, last.seq_number)
    head = (await refs.version(HEAD)).seq_number

    def bound(point: Point) -> Point:
        return AtSeq(min(point.seq_number, head)) if isinstance(point, AtSeq) else point

    return RangeRef(log_range.branch, bound(first), bound(last))


def _reversed_range(first: int, last: int) -> InvalidArgument:
    return InvalidArgument(
        f"The range of the log starts after version {first}, which is later than its end {last}",
        field="versionRef",
    )


async def _parsed_range(refs: RefResolver, ref: str) -> Ref:
    """Parse a reference; a branch alone, by its name or its HEAD, means all of its versions."""
    parsed = parse_ref(ref or "*")
    if not isinstance(parsed, SingleRef):
        return parsed
    if isinstance(parsed.point, NamedRef) and parsed.branch == MAIN_BRANCH:
        is_branch = isinstance(await refs.record(parsed.point.name), Branch)
        return AllRef(parsed.point.name) if is_branch else parsed
    return AllRef(parsed.branch) if parsed.point == HEAD else parsed
