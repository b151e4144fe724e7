"""Version selectors: HEAD, a sequence number, a transaction number or a point in time."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

SEQ_NUMBER_LIMIT: Final = 10**15
"""Smaller numbers are `seq_number`s, others are `txn`s."""


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
    """Return the selector of a plain number: a `seq_number` if small, otherwise a `txn`."""
    return AtSeq(number) if number < SEQ_NUMBER_LIMIT else AtTxn(number)
