"""Printing of query conditions for SQLite; the fragments are in `queries/read.sql`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from naksha.model import limits
from naksha.model.damage import BROKEN_GEOMETRY
from naksha.model.query import GEOMETRY_TYPE, Op
from naksha.model.query import Test as PropertyTest
from naksha.spi.query.areas import Box
from naksha.spi.query.plan import Plan
from naksha.spi.query.printer import ORDER, Printer, joined
from naksha.spi.query.values import check_text, json_text
from naksha.sqlite.sql import sql, text_literal

_PLAIN_KEY: Final = re.compile(r'[^"\\\x00-\x1f]+')
"""Keys that a JSON path of SQLite can contain: it has no escapes."""


class Statement(Printer):
    """A statement of SQLite under construction."""

    def fill(self, name: str, **slots: str) -> str:
        return sql(name, **slots)

    def value(self, value: Any) -> str:
        """Add a parameter; return its placeholder."""
        if isinstance(value, str):
            check_text(value)
        elif isinstance(value, int):
            # No stored number is outside of this range, so clamping does not change the result.
            value = max(-limits.INT8_MAX, min(value, limits.INT8_MAX))
        return f"?{self.add(value)}"

    def text(self, text: str) -> str:
        return self.value(text)

    def number(self, number: int) -> str:
        return self.value(number)

    def texts(self, texts: Iterable[str]) -> str:
        among = list(texts)
        for each in among:
            check_text(each)
        return self.value(msgspec.json.encode(among).decode())

    def numbers(self, values: Iterable[int]) -> str:
        """Add several numbers as one parameter."""
        return self.value(msgspec.json.encode(list(values)).decode())

    def decimal(self, json: str) -> str:
        value = msgspec.json.decode(json)
        # SQLite reads large integers in JSON as floats.
        is_large = isinstance(value, int) and abs(value) > limits.INT8_MAX
        return self.value(float(value) if is_large else value)

    def edges(self, box: Box) -> dict[str, str]:
        """Add the edges of a box; return their placeholders by name."""
        names = ("west", "south", "east", "north")
        return {n: self.value(float(v)) for n, v in zip(names, box, strict=True)}

    def column(self, name: str) -> str:
        return sql(f"column_{name}")

    def filters(self, plan: Plan) -> list[str]:
        """Return the conditions of a plan that do not depend on the table."""
        return list(self._filters(plan))

    def _filters(self, plan: Plan) -> Iterator[str]:
        if plan.ids is not None:
            yield sql("ids", ids=self.texts(plan.ids))
        if plan.hashes is not None:
            first, last = map(self.text, plan.hashes)
            yield sql("part", first=first, last=last)
        yield from self.conditions(plan.conditions)
        if plan.after is not None:
            yield sql("after_cursor", id=self.text(plan.after.id), txn=self.number(plan.after.txn))

    def tags(self, plan: Plan, t: str, tags: str | None) -> Iterator[str]:
        """Yield the condition on tags of the table `t`.

        They are looked up in a table of tags, or without one in the documents.
        """

        def tagged(tag: str) -> str:
            value = self.text(tag)
            if tags is None:
                return sql("tagged", value=value)
            return sql("tagged_by", tags=tags, value=value, t=t)

        if plan.tags is not None:
            groups = [joined([tagged(tag) for tag in each], " AND ", "true") for each in plan.tags]
            yield joined(groups, " OR ", "false")

    def property_test(self, test: PropertyTest) -> str:
        for key in test.path:
            check_text(key)
        document = "s.jsondata"
        if test.path == GEOMETRY_TYPE:
            document = geometry_or_null()
            test = msgspec.structs.replace(test, path=GEOMETRY_TYPE[1:])
        named = json_path(test.path)
        if named is None:
            return self._holds(test, document)
        slots = {"document": document, "path": self.value(named)}
        if test.op in (Op.EXISTS, Op.IS_NULL):
            return sql(f"test_{test.op.value}", **slots)
        if test.op in (Op.STARTS_WITH, Op.ANY_STARTS_WITH):
            return sql(f"test_{test.op.value}", **slots, value=self.text(test.value))
        if test.op is Op.EQ or test.op in ORDER:
            slots["operator"] = ORDER.get(test.op, "=")
            if isinstance(test.value, str):
                return sql("test_order_string", **slots, value=self.text(test.value))
            if _is_plain_number(test.value):
                return sql("test_order_number", **slots, value=self.value(test.value))
        return self._holds(test, document)

    def _holds(self, test: PropertyTest, document: str) -> str:
        json_text(test.value)  # Raises if the value is not JSON.
        return sql("test_holds", document=document, test=self.text(json_text(test)))


def json_path(path: Sequence[str]) -> str | None:
    """Return a path in SQLite's syntax; None if it cannot be expressed."""
    if not path or not all(map(_PLAIN_KEY.fullmatch, path)):
        return None
    return "$" + "".join(f'."{key}"' for key in path)


def geometry() -> str:
    """Return the expression for a row's GeoJSON, marked if it is damaged."""
    return sql("geometry", broken=text_literal(BROKEN_GEOMETRY))


def geometry_or_null() -> str:
    """Return the expression for a row's GeoJSON, or null if SQLite's functions cannot parse it."""
    return sql("geometry_or_null", readable=sql("geometry_readable"))


def _is_plain_number(value: Any) -> bool:
    """Return whether SQLite compares a number exactly; it converts large integers to doubles."""
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return abs(value) <= 2**53
    return isinstance(value, float) and abs(value) <= 2.0**53
