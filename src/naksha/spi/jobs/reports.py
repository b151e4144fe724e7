"""Truncation of job reports: long lists are cut, and the report states which ones and by how much.

A job that succeeded must be able to report it, even if its report is too large.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

TRUNCATED: Final = "truncated"
"""Member of a report that counts what was cut, by field: elements of its lists and objects, or
characters of its texts."""
_MUCH: Final = 1 << 40
"""Larger than any length."""


def fitting(report: Mapping[str, Any], bytes_max: int) -> dict[str, Any]:
    """Truncate a report to at most `bytes_max` bytes of JSON.

    The longest of its lists lose their last elements, as few as possible; if that is not enough,
    texts are cut as well, and finally objects are emptied. All fields stay, and what is cut is
    counted in `TRUNCATED`.
    """
    if _size(report) <= bytes_max:
        return dict(report)
    lists, texts = _Cutter(0, _MUCH, _MUCH), _Cutter(0, 0, _MUCH)
    if _size(lists.cut_report(report)) <= bytes_max:
        return _longest(report, bytes_max, lambda count: _Cutter(count, _MUCH, _MUCH))
    if _size(texts.cut_report(report)) <= bytes_max:
        return _longest(report, bytes_max, lambda length: _Cutter(0, length, _MUCH))
    return _Cutter(0, 0, 0).cut_report(report)


def _size(report: Mapping[str, Any]) -> int:
    return len(msgspec.json.encode(report))


def _longest(
    report: Mapping[str, Any], bytes_max: int, cutter: Callable[[int], _Cutter]
) -> dict[str, Any]:
    """Return the result of the cutter with the greatest length that fits; length 0 always fits."""
    low, high = 0, 1
    while _size(cutter(high).cut_report(report)) <= bytes_max:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        fits = _size(cutter(middle).cut_report(report)) <= bytes_max
        low, high = (middle, high) if fits else (low, middle)
    return cutter(low).cut_report(report)


class _Cutter:
    """Cut lists, texts and objects to a maximum length each, and count the omitted elements."""

    def __init__(self, list_max: int, text_max: int, object_max: int) -> None:
        self._list_max = list_max
        self._text_max = text_max
        self._object_max = object_max
        self._taken = 0

    def cut_report(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """Return the truncated report; counts of an earlier truncation are added."""
        before = report.get(TRUNCATED)
        left_out = Counter(before if isinstance(before, dict) else {})
        kept = {}
        for field, value in report.items():
            if field != TRUNCATED:
                self._taken = 0
                kept[field] = self._cut(value)
                left_out[field] += self._taken
        return {**kept, TRUNCATED: {field: count for field, count in left_out.items() if count}}

    def _cut(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            self._taken += max(0, len(value) - self._list_max)
            return [self._cut(each) for each in value[: self._list_max]]
        if isinstance(value, dict):
            self._taken += max(0, len(value) - self._object_max)
            return {name: self._cut(value[name]) for name in list(value)[: self._object_max]}
        if isinstance(value, str):
            self._taken += max(0, len(value) - self._text_max)
            return value[: self._text_max]
        return value
