"""Reports of jobs that fit: whoever has done something is not silent because there is too much to
tell. Long lists are cut, and the report says of which and how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

TRUNCATED: Final = "truncated"
"""The member of a report that says how much was left out, by field: elements of its lists and
objects, or characters of its texts."""
_MUCH: Final = 1 << 40
"""More than anything has."""


def fitting(report: Mapping[str, Any], bytes_max: int) -> dict[str, Any]:
    """A report with at most so many bytes of JSON. The longest of its lists lose their last
    elements, as many as it takes and none more; texts lose theirs if that is not enough, and
    objects what is in them. All fields stay, and what is left out is counted in `TRUNCATED`."""
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
    """What a cutter leaves that cuts as little as it may; one that cuts to 0 cuts enough."""
    low, high = 0, 1
    while _size(cutter(high).cut_report(report)) <= bytes_max:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        fits = _size(cutter(middle).cut_report(report)) <= bytes_max
        low, high = (middle, high) if fits else (low, middle)
    return cutter(low).cut_report(report)


class _Cutter:
    """Cuts lists, texts and objects to a length each, and counts what it took away."""

    def __init__(self, list_max: int, text_max: int, object_max: int) -> None:
        self._list_max = list_max
        self._text_max = text_max
        self._object_max = object_max
        self._taken = 0

    def cut_report(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """What is left of a report; to what was left out before, more is added."""
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
