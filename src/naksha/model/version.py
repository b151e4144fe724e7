"""Which version to read: HEAD, a sequence number, a transaction number or a point in time."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

SEQ_NUMBER_LIMIT: Final = 10**15
"""Numbers below this are `seq_number`s, numbers from here on are `txn`s."""


class Head(msgspec.Struct, frozen=True, tag="head"):
    """The committed state, published or not."""


class AtSeq(msgspec.Struct, frozen=True, tag="seq"):
    """The state after the transaction published with this number; 0 is before everything."""

    seq_number: int


class AtTxn(msgspec.Struct, frozen=True, tag="txn"):
    """The state after this transaction; it must be published."""

    txn: int


class AtTime(msgspec.Struct, frozen=True, tag="time"):
    """The state after the last transaction published at or before this time (epoch ms)."""

    epoch_ms: int


VersionSelector: TypeAlias = Head | AtSeq | AtTxn | AtTime
HEAD: Final = Head()


class Version(msgspec.Struct, frozen=True, order=True):
    """A published point in a storage's history."""

    seq_number: int
    txn: int
    published_ms: int


def selector_of(number: int) -> AtSeq | AtTxn:
    """A bare number as selector: small ones count transactions, large ones are a txn."""
    return AtSeq(number) if number < SEQ_NUMBER_LIMIT else AtTxn(number)
