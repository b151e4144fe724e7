"""Bloom filter over 64-bit hashes, without false negatives and with few false positives."""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Hashes: TypeAlias = NDArray[np.uint64]

_WORD_BITS: Final = 64
_ONE: Final = np.uint64(1)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_OTHER: Final = np.uint64(0x9E3779B97F4A7C15)


def mixed(numbers: Hashes) -> Hashes:
    """Hash each number so that all its bits count (the finalizer of splitmix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _FIRST
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _SECOND
    return numbers ^ (numbers >> np.uint64(31))


class BloomFilter:
    """A filter whose false positive rate is `rate` once it holds `expected` hashes."""

    def __init__(self, expected: int, rate: float) -> None:
        bits = -max(1, expected) * math.log(rate) / math.log(2) ** 2
        words = math.ceil(bits / _WORD_BITS)
        self._words = np.zeros(words, dtype=np.uint64)
        self._bits = np.uint64(words * _WORD_BITS)
        self._hashes = max(1, round(-math.log2(rate)))

    @property
    def rate(self) -> float:
        """The current false positive rate, by how many of its bits are set."""
        set_bits = int(np.bitwise_count(self._words).sum())
        return float((set_bits / int(self._bits)) ** self._hashes)

    def add(self, hashes: Hashes) -> None:
        for words, bits in self._places(hashes):
            np.bitwise_or.at(self._words, words, bits)

    def has(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Return for each hash whether it was probably added."""
        found = np.ones(len(hashes), dtype=np.bool_)
        for words, bits in self._places(hashes):
            found &= (self._words[words] & bits) != 0
        return found

    def _places(self, hashes: Hashes) -> list[tuple[Hashes, Hashes]]:
        """Return the word and the bit in it for each hash, once for each hash function."""
        step = mixed(hashes ^ _OTHER) | _ONE
        places = []
        for number in range(self._hashes):
            at = (hashes + step * np.uint64(number)) % self._bits
            places.append((at >> np.uint64(6), _ONE << (at & np.uint64(63))))
        return places
