"""Lease of a node id while a catalog is open.

It takes a free node id, renews its lease in the background, takes another one if it is lost, and
releases it at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
import socket
from collections.abc import Iterator
from typing import Final, Self

import msgspec

from naksha.catalog.cluster.clock import MonotonicClock
from naksha.catalog.cluster.database_time import DatabaseTime
from naksha.catalog.cluster.ids import IdGenerator
from naksha.catalog.cluster.leases import LeaseTable, NodeLease, StoredLease
from naksha.catalog.cluster.snowflake import IdSpec
from naksha.model import limits
from naksha.model.errors import InvalidArgument, NakshaError, OutcomeUnknown, Unavailable
from naksha.spi.catalog import CatalogBackend
from naksha.spi.support.cancellation import check_cancelled

_TICK_SECONDS: Final = 1.0
"""Interval at which the background task reads the clock, which may have jumped."""
_RELEASE_ATTEMPTS: Final = 2

logger = logging.getLogger(__name__)


class LeaseTimes(msgspec.Struct, frozen=True):
    """Duration of leases and the times of their renewal."""

    lease_seconds: float = limits.LEASE_SECONDS
    renew_seconds: float = limits.LEASE_RENEW_SECONDS
    drift_seconds: float = limits.LEASE_DRIFT_SECONDS
    retry_seconds: float = limits.LEASE_RETRY_SECONDS

    def __post_init__(self) -> None:
        if not 0 < self.renew_seconds < self.lease_seconds:
            raise InvalidArgument(
                f"A lease of {self.lease_seconds} s cannot be renewed in its last "
                f"{self.renew_seconds} s; renew_seconds must be between 0 and lease_seconds",
                field="renew_seconds",
            )
        if self.drift_seconds < 0 or self.retry_seconds <= 0:
            raise InvalidArgument(
                "drift_seconds must not be negative and retry_seconds must be greater than 0, not"
                f" {self.drift_seconds} and {self.retry_seconds}",
                field="drift_seconds",
            )


class Node:
    """The node id of this instance, and its id generator.

    `identity` (host and place) identifies this instance across restarts, so that it gets the same
    node id again if no other instance has taken it.
    """

    def __init__(
        self,
        backend: CatalogBackend,
        spec: IdSpec,
        clock: MonotonicClock,
        *,
        identity: str = "",
        address: str = "",
        times: LeaseTimes | None = None,
        database_time: DatabaseTime | None = None,
    ) -> None:
        times = times or LeaseTimes()
        self.instance: Final = secrets.token_urlsafe(9)
        self.ids: Final = IdGenerator(spec, clock)
        self._table = LeaseTable(backend, spec, clock)
        self._spec = spec
        self._clock = clock
        self._identity = f"{socket.gethostname()} {identity}"
        self._address = address
        self._time = database_time
        self._lease_ms = int(times.lease_seconds * 1000)
        self._renew_ms = int(times.renew_seconds * 1000)
        self._drift_ms = int(times.drift_seconds * 1000)
        self._retry_ms = int(times.retry_seconds * 1000)
        self._held: StoredLease | None = None
        self._retry_at_ms = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def lease(self) -> NodeLease | None:
        """The lease that is held, or was held until it expired."""
        return self._held.lease if self._held else None

    async def start(self) -> Self:
        """Lease a node id and keep it until `close`."""
        await self._acquire()
        self._task = asyncio.create_task(self._keep(), name="naksha-node")
        return self

    async def close(self) -> None:
        """Release the node id; no ids can be generated afterwards."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        used_ms = self.ids.stop("the catalog is closed")
        try:
            await self._release(used_ms)
        except NakshaError as error:
            logger.warning(
                "The id of this process in the catalog could not be released and stays reserved "
                "until its lease expires; new processes use other ids: %s",
                error,
            )

    async def check(self) -> None:
        """Renew the lease and read the time if they are due; after a failure, only after a pause.

        The background task calls it regularly.
        """
        await self._check_lease()
        if self._time is not None:
            await self._time.check()
            held = self._held
            if held is not None and self._skew_changed(held.lease):
                await self._renew(held)

    def _skew_changed(self, lease: NodeLease) -> bool:
        changed_ms = abs((lease.skew_ms or 0) - (self._skew_ms() or 0))
        return changed_ms > limits.CLOCK_SKEW_IGNORED_SECONDS * 1_000

    def _skew_ms(self) -> int | None:
        return None if self._time is None else self._time.skew_ms

    async def _check_lease(self) -> None:
        now_ms = self._clock.now_ms()
        held = self._held
        is_due = held is None or now_ms >= held.lease.end_ms - self._renew_ms
        if not is_due or now_ms < self._retry_at_ms:
            return
        self._retry_at_ms = now_ms + self._retry_ms
        if held is None or now_ms >= held.lease.end_ms:
            await self._acquire()
        else:
            await self._renew(held)
        self._retry_at_ms = 0

    async def peers(self) -> dict[str, str]:
        """Return the addresses of the other instances by their names."""
        found = await self._table.addresses(self._clock.now_ms())
        found.pop(self.instance, None)
        return found

    async def living(self) -> list[NodeLease]:
        """Return the leases of all live instances, including this one, as far as is known."""
        return await self._table.living(self._clock.now_ms())

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            try:
                await self.check()
            except NakshaError as error:
                check_cancelled()
                logger.warning(
                    "The lease of the node id could not be renewed and is retried: %s", error
                )
            except Exception:
                check_cancelled()
                logger.exception("The lease of the node id could not be renewed and is retried")

    async def _renew(self, held: StoredLease) -> None:
        end_ms = max(self._clock.now_ms() + self._lease_ms, held.lease.end_ms)
        lease = msgspec.structs.replace(held.lease, end_ms=end_ms, skew_ms=self._skew_ms())
        kept = await self._table.put(lease, held)
        if kept is None:
            kept = await self._still_held(held)
        if kept is None:
            logger.warning(
                "Another instance took over node id %s of this one, whose lease was not renewed "
                "in time; this instance leases another one",
                held.lease.node,
            )
            self.ids.stop("the node id of this process was taken over by another instance")
            self._held = None
            await self._acquire()
        else:
            self._held = kept
            self.ids.extend(kept.lease.end_ms)

    async def _still_held(self, held: StoredLease) -> StoredLease | None:
        """Return the current lease if an earlier renewal with an unknown outcome took effect."""
        kept = (await self._table.read([held.lease.node])).get(held.lease.node)
        return kept if kept is not None and kept.lease.continues(held.lease) else None

    async def _acquire(self) -> None:
        """Take the first free node; nodes that other instances take meanwhile are skipped."""
        self._check_clock()
        unknown = 0
        for nodes in self._candidates():
            found = await self._table.read(nodes)
            for node in nodes:
                try:
                    if await self._take(node, found.get(node)):
                        return
                except OutcomeUnknown as error:
                    unknown += 1
                    if unknown > limits.LEASE_UNKNOWN_MAX:
                        raise Unavailable(
                            "No node id could be leased, because the catalog's database did not "
                            f"confirm {unknown} attempts; retry later"
                        ) from error
        raise Unavailable(
            f"All {self._spec.nodes:,} node ids of the catalog are leased; close an instance, or"
            " wait until the lease of a dead instance expires"
        )

    async def _take(self, node: int, over: StoredLease | None) -> bool:
        now_ms = self._clock.now_ms()
        if over is not None and not over.lease.is_free(now_ms, self._drift_ms):
            return False
        end_ms = now_ms + self._lease_ms
        lease = NodeLease(
            node, now_ms, end_ms, self.instance, self._address, skew_ms=self._skew_ms()
        )
        kept = await self._table.put(lease, over)
        if kept is None:
            return False
        self._held = kept
        self.ids.begin(node, now_ms, end_ms)
        return True

    def _check_clock(self) -> None:
        if not self._spec.epoch_ms <= self._clock.now_ms() < self._spec.end_ms:
            raise Unavailable(
                f"The clock of this machine is wrong: {self._clock.now_ms()} ms since 1970 is not"
                f" between {self._spec.epoch_ms} and {self._spec.end_ms}, the times of ids; correct"
                " the clock"
            )

    def _candidates(self) -> Iterator[list[int]]:
        """Iterate over all nodes, a few at a time.

        The first one is the node that this instance most likely had before; the others start at a
        random one, so that instances which start together do not collide.
        """
        digest = hashlib.blake2b(self._identity.encode(), digest_size=8).digest()
        first = int.from_bytes(digest, "big") % self._spec.nodes
        begin = secrets.randbelow(self._spec.nodes)
        rotated = ((begin + n) % self._spec.nodes for n in range(self._spec.nodes))
        nodes = [first, *(node for node in rotated if node != first)]
        for at in range(0, len(nodes), limits.LEASE_READ_MAX):
            yield nodes[at : at + limits.LEASE_READ_MAX]

    async def _release(self, used_ms: int) -> None:
        held, self._held = self._held, None
        for _ in range(_RELEASE_ATTEMPTS):
            if held is None:
                return
            end_ms = min(max(self._clock.now_ms(), used_ms), held.lease.end_ms)
            over = msgspec.structs.replace(held.lease, end_ms=end_ms, is_released=True)
            if await self._table.put(over, held) is not None:
                return
            held = await self._still_held(held)
