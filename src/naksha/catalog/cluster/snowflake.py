"""The form of ids: milliseconds since an epoch, the node that gave it, and a sequence, in 63 bits.

Ids of one node increase; ids of several nodes are ordered as far as their clocks agree. The form is
kept in the catalog itself, so that everyone who opens it makes the same ids.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from naksha.catalog.cluster.clock import MonotonicClock
from naksha.catalog.objects import object_type
from naksha.catalog.system_objects import ID_SPEC_ID, keep_once
from naksha.model.errors import InvalidArgument
from naksha.spi.catalog import CatalogBackend

EPOCH: Final = datetime(2025, 3, 1, tzinfo=UTC)
EPOCH_MS: Final = int(EPOCH.timestamp()) * 1000

_ID_BITS: Final = 63
_BITS_MIN: Final = {"timestamp_bits": 40, "node_bits": 4, "sequence_bits": 5}
"""34 years, 16 nodes, 32 ids a millisecond."""
_YEAR_1970: Final = datetime(1970, 1, 1, tzinfo=UTC)

logger = logging.getLogger(__name__)


class IdParts(NamedTuple):
    """What an id is made of."""

    ms: int
    """Since 1970."""
    node: int
    sequence: int


@object_type("id-spec")
class IdSpec(msgspec.Struct, frozen=True):
    """How many bits of an id are what, from the highest, and when its time begins."""

    timestamp_bits: int = 41
    node_bits: int = 10
    sequence_bits: int = 12
    epoch_ms: int = EPOCH_MS

    def __post_init__(self) -> None:
        for field, least in _BITS_MIN.items():
            if getattr(self, field) < least:
                raise InvalidArgument(f"An id has at least {least} {field}", field=field)
        if self.timestamp_bits + self.node_bits + self.sequence_bits != _ID_BITS:
            raise InvalidArgument(
                f"The bits of an id are {_ID_BITS} in sum", field="timestamp_bits"
            )
        if self.epoch_ms < 0:
            raise InvalidArgument("The time of ids begins in 1970 or later", field="epoch_ms")

    @property
    def nodes(self) -> int:
        """How many nodes there can be at a time."""
        return 1 << self.node_bits

    @property
    def sequences(self) -> int:
        """How many ids a node can give in a millisecond."""
        return 1 << self.sequence_bits

    @property
    def end_ms(self) -> int:
        """When generated ids end: the largest timestamp is that of system ids."""
        return self.epoch_ms + (1 << self.timestamp_bits) - 1

    def compose(self, ms: int, node: int, sequence: int) -> int:
        """The id of these parts."""
        if not self.epoch_ms <= ms <= self.end_ms:
            raise InvalidArgument(f"No id has the time {ms} ms", field="ms")
        if not 0 <= node < self.nodes:
            raise InvalidArgument(f"Nodes are 0 to {self.nodes - 1}, not {node}", field="node")
        if not 0 <= sequence < self.sequences:
            raise InvalidArgument(
                f"Sequences are 0 to {self.sequences - 1}, not {sequence}", field="sequence"
            )
        since = ms - self.epoch_ms
        return ((since << self.node_bits | node) << self.sequence_bits) | sequence

    def parts(self, id: int) -> IdParts:
        """What an id is made of."""
        if not 0 <= id < 1 << _ID_BITS:
            raise InvalidArgument(f"{id} is no id: it has 63 bits and no sign", field="id")
        upper, sequence = divmod(id, self.sequences)
        since, node = divmod(upper, self.nodes)
        return IdParts(self.epoch_ms + since, node, sequence)

    def time(self, id: int) -> datetime:
        """When an id was made, by the clock of its node."""
        return _YEAR_1970 + timedelta(milliseconds=self.parts(id).ms)

    def system_id(self, node: int) -> int:
        """The id under which something about a node is kept; no generator ever gives it."""
        return self.compose(self.end_ms, node, 0)


async def load_spec(
    backend: CatalogBackend, clock: MonotonicClock, local: IdSpec | None = None
) -> IdSpec:
    """The form of this catalog's ids. The first one to ask decides it, with `local`."""
    local = local or IdSpec()
    kept = await keep_once(backend, ID_SPEC_ID, local, clock.now_us())
    if kept != local:
        logger.warning("Ids are made as the catalog has it, %s, not as configured, %s", kept, local)
    return kept
