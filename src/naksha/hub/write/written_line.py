"""Target line of a write, main or a branch, and the version that the write is based on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from naksha.hub.pipeline.targets import CollectionTarget, ResolvedTarget
from naksha.hub.write.conflicted_branches import check_writable
from naksha.hub.write.entries import PreparedWrite, plain_entries
from naksha.model import limits
from naksha.model.errors import CollectionNotFound, Conflict
from naksha.model.query import Query
from naksha.model.state import State
from naksha.model.version import Head
from naksha.spi.storage import Storage
from naksha.versioning.version_refs import MAIN_BRANCH

T = TypeVar("T")


class WrittenLine(NamedTuple):
    """The line that is written to, as a storage."""

    storage: Storage
    is_main: bool
    base: ResolvedTarget | None = None
    """The version at which the request's features were read, if its `ref` names one."""


async def written_line(target: CollectionTarget, ref: str) -> WrittenLine:
    """Resolve a version reference for a write.

    Only the head of a line can be written, so a version on the line is the base of the write.
    """
    if not ref or ref == "HEAD":
        return WrittenLine(target.storage, is_main=True)
    refs = target.resolver()
    read = ResolvedTarget.of(target, await refs.place(ref))
    line, base = read.line, None
    if not isinstance(read.at, Head):
        line, base = await refs.line(line.name), read
    check_writable(line.branch)
    return WrittenLine(line.storage, line.name == MAIN_BRANCH, base)


async def on_line(
    target: CollectionTarget, ref: str, write: Callable[[WrittenLine], Awaitable[T]]
) -> T:
    """Run a write on a line; open the branch again if it was rebased concurrently."""
    for _ in range(limits.RETRY_GATE_COUNT):
        try:
            return await write(await written_line(target, ref))
        except Conflict as error:
            if error.field != "layers":
                raise
    return await write(await written_line(target, ref))


async def base_states(base: ResolvedTarget, prepared: PreparedWrite) -> dict[str, State]:
    """Return the features of a request as they were at a version."""
    id = base.collection_id
    try:
        info = await base.reader.collection(id)
        entries = [entry for batch in prepared.batches for entry in batch.entries]
        ids = tuple(plain_entries(entries, info.id_prefix))
        page = await base.reader.page(id, Query(ids=ids), base.at)
    except CollectionNotFound:
        return {}
    return {state.id: state for state in page.states}
