"""Leases of node ids: one conditional object for each node in the realm `::system::`.

A lease has a start and an end, and the ids of its holder have timestamps from the start to before
the end. A row is never deleted, only taken over, and a take-over starts strictly after the end that
it finds. Two holders of a node therefore never share a timestamp, whatever their clocks show.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from naksha.catalog.cluster.clock import MonotonicClock
from naksha.catalog.cluster.snowflake import IdSpec
from naksha.catalog.objects import decode, encode, object_type, type_id
from naksha.catalog.system_objects import SYSTEM_REALM, new_token
from naksha.model import limits
from naksha.model.errors import OutcomeUnknown, StorageCorrupt, Unavailable
from naksha.spi.catalog import CatalogBackend, ObjectKey, ObjectRow


@object_type("node-lease", is_cached=False)
class NodeLease(msgspec.Struct, frozen=True):
    """The right to generate ids of a node with timestamps from a range."""

    node: int
    start_ms: int
    end_ms: int
    """The first timestamp that the holder does not use."""
    holder: str
    """A random name of the instance."""
    address: str = ""
    """Address at which the instance receives messages of its peers; empty for none."""
    is_released: bool = False
    """Whether the holder has released it and certainly no longer uses it."""
    skew_ms: int | None = None
    """Offset of the holder's machine from the database; None if an older release wrote it."""

    def is_free(self, now_ms: int, drift_ms: int) -> bool:
        """Return whether another instance may take the node from `now_ms` on."""
        return now_ms > self.end_ms + (0 if self.is_released else drift_ms)

    def continues(self, other: NodeLease) -> bool:
        """Return whether one lease is a renewal of the other."""
        return (self.holder, self.start_ms) == (other.holder, other.start_ms)


class StoredLease(NamedTuple):
    """A lease in the database, with the token required to overwrite it."""

    lease: NodeLease
    token: str


class LeaseTable:
    """The rows of all leases."""

    def __init__(self, backend: CatalogBackend, spec: IdSpec, clock: MonotonicClock) -> None:
        self._backend = backend
        self._spec = spec
        self._clock = clock

    async def read(self, nodes: Iterable[int]) -> dict[int, StoredLease]:
        """Return the existing leases of these nodes."""
        keys = [ObjectKey(self._spec.system_id(node)) for node in nodes]
        try:
            async with asyncio.timeout(limits.LEASE_CALL_SECONDS_MAX):
                rows = await self._backend.fetch(SYSTEM_REALM, keys)
        except TimeoutError:
            raise Unavailable(
                "The leases of node ids could not be read in time; retry later"
            ) from None
        kept = (_kept(row) for row in rows.values())
        return {each.lease.node: each for each in kept}

    async def put(self, lease: NodeLease, over: StoredLease | None) -> StoredLease | None:
        """Write a lease over another one, or where there is none.

        Returns None if the row is not as expected.

        Raises:
            OutcomeUnknown: Even reading the row again could not determine the outcome.
        """
        row = self._row(lease)
        try:
            async with asyncio.timeout(limits.LEASE_CALL_SECONDS_MAX):
                if over is None:
                    done = await self._backend.insert(SYSTEM_REALM, row)
                else:
                    done = await self._backend.replace(SYSTEM_REALM, row, over.token)
        except (OutcomeUnknown, TimeoutError):
            done = await self._was_put(lease.node, row, over)
        assert row.token is not None
        return StoredLease(lease, row.token) if done else None

    async def addresses(self, now_ms: int) -> dict[str, str]:
        """Return the addresses of the live instances by their names."""
        living = await self.living(now_ms)
        return {lease.holder: lease.address for lease in living if lease.address}

    async def living(self, now_ms: int) -> list[NodeLease]:
        """Return the leases of instances that are live, as far as is known, ordered by node."""
        kept = await self.read(range(self._spec.nodes))
        return [
            lease
            for _, (lease, _) in sorted(kept.items())
            if not lease.is_released and now_ms < lease.end_ms
        ]

    async def _was_put(self, node: int, row: ObjectRow, over: StoredLease | None) -> bool:
        found = (await self.read([node])).get(node)
        if found == over:
            raise OutcomeUnknown(
                f"It is unknown whether the lease of node id {node} was written; retry later"
            )
        return found is not None and found.token == row.token

    def _row(self, lease: NodeLease) -> ObjectRow:
        return ObjectRow(
            id=self._spec.system_id(lease.node),
            part=0,
            parts=1,
            type=type_id(lease),
            value=encode(lease),
            created_us=self._clock.now_us(),
            token=new_token(),
        )


def _kept(row: ObjectRow) -> StoredLease:
    lease = decode(row.type, row.value)
    if not isinstance(lease, NodeLease) or row.token is None:
        raise StorageCorrupt(
            f"Object {row.id} of realm {SYSTEM_REALM!r} is not the lease of a node id; restore "
            "the catalog from a backup"
        )
    return StoredLease(lease, row.token)
