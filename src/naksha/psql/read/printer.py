"""Printing of query conditions for PostgreSQL; the fragments are in `queries/read.sql`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from naksha.model import limits
from naksha.model.query import GEOMETRY_TYPE, MEMBERS, RANGES, Bbox, Op
from naksha.model.query import Test as PropertyTest
from naksha.psql.sql import sql
from naksha.spi.query.areas import Area, Box, area_of
from naksha.spi.query.plan import Plan
from naksha.spi.query.printer import ORDER, Printer, joined
from naksha.spi.query.values import check_text, json_text

_BOX_THIN = 0.001
"""Width in degrees below which float32 cannot resolve the inside of a box.

See the fragment `box`.
"""


class Statement(Printer):
    """A statement of PostgreSQL under construction."""

    def value(self, value: Any, type_: str) -> str:
        """Add a parameter; return its placeholder."""
        return f"${self.add(value)}::{type_}"

    def fill(self, name: str, **slots: str) -> str:
        return sql(name, **slots)

    def text(self, text: str) -> str:
        check_text(text)
        return f"${self.add(text)}::text"

    def texts(self, texts: Iterable[str]) -> str:
        values = list(texts)
        for text in values:
            check_text(text)
        return self.value(values, "text[]")

    def number(self, number: int) -> str:
        return f"${self.add(number)}::int8"

    def decimal(self, json: str) -> str:
        # As text: a JSON number may be more precise than any number type of the driver.
        return self.text(json) + "::numeric"

    def column(self, name: str) -> str:
        if name == "txn":
            return sql("txn")
        return sql("number" if name in RANGES else "text", key=MEMBERS.get(name, name))

    def path(self, path: Sequence[str]) -> str:
        """Return the value at a path of a document."""
        return sql("path", steps="".join(sql("step", key=self.text(key)) for key in path))

    def filters(self, plan: Plan) -> list[str]:
        """Return the conditions of a plan that do not depend on the table."""
        return list(self._filters(plan))

    def _filters(self, plan: Plan) -> Iterator[str]:
        if plan.area is not None:
            yield self._area(plan.area)
        if plan.tags is not None:
            groups = [sql("tags_all", tags=self.texts(group)) for group in plan.tags]
            yield joined(groups, " OR ", "false")
        yield from self.conditions(plan.conditions)
        if plan.first_txn is not None:
            yield self.at_least("txn", plan.first_txn)
        if plan.after is not None:
            yield sql("after_cursor", id=self.text(plan.after.id), txn=self.number(plan.after.txn))

    def box(self, box: Bbox) -> str:
        """Return the condition that a feature's box meets this one."""
        return self._area(area_of(box))

    def _area(self, area: Area) -> str:
        shape = area.shape
        if shape is None:
            exact = [self._exact_box(box) for box in area.boxes]
            return exact[0] if len(exact) == 1 else joined(exact, " OR ", "false")
        wkb = self.value(shape.wkb, "bytea")
        if shape.radius == 0:
            return sql("intersects", wkb=wkb)
        rough = self._box(area.boxes[0], "rough_box")
        near = sql("near", wkb=wkb, radius=self.value(shape.radius, "float8"))
        return f"{rough} AND {near}"

    def _exact_box(self, box: Box) -> str:
        west, south, east, north = box
        thin = min(east - west, north - south) < _BOX_THIN
        return self._box(box, "thin_box" if thin else "box")

    def _box(self, box: Box, fragment: str) -> str:
        west, south, east, north = [f"${self.add(float(edge))}::float8" for edge in box]
        return sql(fragment, west=west, south=south, east=east, north=north)

    def property_test(self, test: PropertyTest) -> str:
        if len(test.path) > limits.JSON_DEPTH_MAX:
            return "false"  # no feature is nested so deep, and every test of an absent value fails
        is_type = test.path == GEOMETRY_TYPE
        path = sql("geometry_type") if is_type else self.path(test.path)
        if test.op in (Op.EXISTS, Op.IS_NULL):
            return sql(f"test_{test.op.value}", path=path)
        is_text = isinstance(test.value, str)
        if test.op in (Op.STARTS_WITH, Op.ANY_STARTS_WITH):
            return sql(f"test_{test.op.value}", path=path, value=self.text(test.value))
        if test.op in ORDER and is_text:
            value, operator = self.text(test.value), ORDER[test.op]
            return sql("test_order_string", path=path, operator=operator, value=value)
        value = self.text(json_text(test.value))
        if test.op in ORDER:
            return sql("test_order_number", path=path, operator=ORDER[test.op], value=value)
        return sql(f"test_{test.op.value}", path=path, value=value)
