"""Layout of ids: milliseconds since an epoch, the generating node, and a sequence, in 63 bits.

Ids of one node increase; ids of several nodes are ordered as far as their clocks agree. The layout
is stored in the catalog, so that all instances generate the same kind of ids.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from naksha.catalog.cluster.clock import MonotonicClock
from naksha.catalog.objects import object_type
from naksha.catalog.system_objects import ID_SPEC_ID, store_constant
from naksha.model.errors import InvalidArgument
from naksha.spi.catalog import CatalogBackend

_EPOCH: Final = datetime(2025, 3, 1, tzinfo=UTC)
EPOCH_MS: Final = int(_EPOCH.timestamp()) * 1000

_ID_BITS: Final = 63
_BITS_MIN: Final = {"timestamp_bits": 40, "node_bits": 4, "sequence_bits": 5}
"""34 years, 16 nodes, 32 ids per millisecond."""
_YEAR_1970: Final = datetime(1970, 1, 1, tzinfo=UTC)

logger = logging.getLogger(__name__)


class IdParts(NamedTuple):
    """The parts of an id."""

    ms: int
    """Milliseconds since 1970."""
    node: int
    sequence: int


@object_type("id-spec")
class IdSpec(msgspec.Struct, frozen=True):
    """Number of bits of each part of an id, from the highest, and the epoch of its time."""

    timestamp_bits: int = 41
    node_bits: int = 10
    sequence_bits: int = 12
    epoch_ms: int = EPOCH_MS

    def __post_init__(self) -> None:
        for field, least in _BITS_MIN.items():
            if (bits := getattr(self, field)) < least:
                raise InvalidArgument(f"{field} must be at least {least}, not {bits}", field=field)
        if self.timestamp_bits + self.node_bits + self.sequence_bits != _ID_BITS:
            raise InvalidArgument(
                f"timestamp_bits, node_bits and sequence_bits must add up to {_ID_BITS}, not"
                f" {self.timestamp_bits + self.node_bits + self.sequence_bits}",
                field="timestamp_bits",
            )
        if self.epoch_ms < 0:
            raise InvalidArgument(
                f"epoch_ms must not be negative, not {self.epoch_ms}: the epoch of ids is in 1970"
                " or later",
                field="epoch_ms",
            )

    @property
    def nodes(self) -> int:
        """Number of nodes that can exist at a time."""
        return 1 << self.node_bits

    @property
    def sequences(self) -> int:
        """Number of ids that a node can generate in a millisecond."""
        return 1 << self.sequence_bits

    @property
    def end_ms(self) -> int:
        """End of generated ids: the largest timestamp is reserved for system ids."""
        return self.epoch_ms + (1 << self.timestamp_bits) - 1

    def compose(self, ms: int, node: int, sequence: int) -> int:
        """Return the id of these parts."""
        if not self.epoch_ms <= ms <= self.end_ms:
            raise InvalidArgument(
                f"The time of an id must be between {self.epoch_ms} and {self.end_ms} ms since "
                f"1970, not {ms}; correct the argument ms",
                field="ms",
            )
        if not 0 <= node < self.nodes:
            raise InvalidArgument(
                f"The node of an id must be between 0 and {self.nodes - 1}, not {node}; correct "
                "the argument node",
                field="node",
            )
        if not 0 <= sequence < self.sequences:
            raise InvalidArgument(
                "The sequence number of an id within its millisecond must be between 0 and "
                f"{self.sequences - 1}, not {sequence}; correct the argument sequence",
                field="sequence",
            )
        since = ms - self.epoch_ms
        return ((since << self.node_bits | node) << self.sequence_bits) | sequence

    def parts(self, id: int) -> IdParts:
        """Return the parts of an id."""
        if not 0 <= id < 1 << _ID_BITS:
            raise InvalidArgument(
                f"{id} is not a valid id; it must be an integer from 0 to 2^63 - 1", field="id"
            )
        upper, sequence = divmod(id, self.sequences)
        since, node = divmod(upper, self.nodes)
        return IdParts(self.epoch_ms + since, node, sequence)

    def time(self, id: int) -> datetime:
        """Return when an id was generated, by the clock of its node."""
        return _YEAR_1970 + timedelta(milliseconds=self.parts(id).ms)

    def system_id(self, node: int) -> int:
        """Return the id of the system object of a node; no generator produces it."""
        return self.compose(self.end_ms, node, 0)


async def load_spec(
    backend: CatalogBackend, clock: MonotonicClock, local: IdSpec | None = None
) -> IdSpec:
    """Return the id layout of this catalog; the first instance defines it with `local`."""
    local = local or IdSpec()
    kept = await store_constant(backend, ID_SPEC_ID, local, clock.now_us())
    if kept != local:
        logger.warning(
            "The id layout of a catalog is fixed when it is created: %s is used, the configured "
            "layout %s is ignored",
            kept,
            local,
        )
    return kept
