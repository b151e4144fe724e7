"""Features and ids of a request, each with an id and with its position for errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from naksha.hub.config.objects import Dateline
from naksha.hub.pipeline.requests import IfExists, Modification, WriteFeatures
from naksha.hub.pipeline.responses import Notice
from naksha.hub.write.dateline_split import wrap_geometry
from naksha.model.errors import InvalidArgument, NakshaError
from naksha.model.feature_problems import readable_id
from naksha.model.features import generate_ids
from naksha.model.identity.names import text_problem
from naksha.model.limits import FEATURE_ID_BYTES_MAX, INT8_MAX
from naksha.model.state import CONFLICTING
from naksha.model.value_text import value_text

Feature = dict[str, Any]


class Entry(NamedTuple):
    """A feature, or (None) an id alone.

    The position counts all features and ids of a request over its modifications; in each
    modification the features come first.
    """

    position: int
    id: str
    feature: Feature | None

    def renamed(self, id: str) -> Entry:
        """Return the entry with another id."""
        feature = None if self.feature is None else {**self.feature, "id": id}
        return Entry(self.position, id, feature)


class EntryBatch(NamedTuple):
    """The entries of a modification, with unique ids."""

    rules: Modification
    entries: tuple[Entry, ...]


class PreparedWrite(NamedTuple):
    """A request that can be carried out repeatedly. `errors` are those of unusable features."""

    batches: tuple[EntryBatch, ...]
    errors: tuple[NakshaError, ...]
    notices: tuple[Notice, ...]


def prepare_write(request: WriteFeatures, dateline: Dateline) -> PreparedWrite:
    """Return a request's features with their ids, and with geometries within ±180."""
    return _EntryBuilder(request, dateline).build()


class _EntryBuilder:
    def __init__(self, request: WriteFeatures, dateline: Dateline) -> None:
        self._request = request
        self._dateline = dateline
        self._errors: list[NakshaError] = []
        self._notices: list[Notice] = []
        self._position = 0

    def build(self) -> PreparedWrite:
        batches = tuple(map(self._batch, self._request.modifications))
        return PreparedWrite(batches, tuple(self._errors), tuple(self._notices))

    def _batch(self, rules: Modification) -> EntryBatch:
        by_id: dict[str, Entry] = {}
        for entry in self._entries(rules):
            earlier = by_id.pop(entry.id, None)
            if earlier is not None:
                self._notice(
                    earlier,
                    f"Ignored: position {entry.position} has the same id and takes precedence",
                )
            by_id[entry.id] = entry
        return EntryBatch(rules, tuple(by_id.values()))

    def _entries(self, rules: Modification) -> Iterator[Entry]:
        for feature in rules.features:
            position = self._next_position()
            try:
                yield self._entry(position, feature)
            except InvalidArgument as error:
                self._failed(error, position, feature)
        for id in rules.ids:
            position = self._next_position()
            try:
                _check_id_alone(rules)
                yield Entry(position, self._prefixed_id(id), None)
            except InvalidArgument as error:
                self._failed(error, position, {"id": id})

    def _entry(self, position: int, feature: Any) -> Entry:
        if not isinstance(feature, dict):
            raise InvalidArgument(
                f"A feature must be a JSON object, not {value_text(feature)}",
                field=f"features[{position}]",
            )
        sent_id = feature.get("id")
        id = self._prefixed_id(generate_ids(1)[0] if sent_id is None else sent_id)
        feature = {**feature, "id": id}
        feature.pop(CONFLICTING, None)
        entry = Entry(position, id, feature)
        wrapped = wrap_geometry(feature, self._dateline)
        if wrapped is not None:
            self._notice(entry, wrapped.message)
            entry = Entry(position, id, wrapped.feature)
        return entry

    def _prefixed_id(self, value: object) -> str:
        """Add the request's prefix to an id; a number is used as decimal text."""
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= INT8_MAX:
            value = str(value)
        id_text = f"{self._request.prefix_id}{value}" if isinstance(value, str) and value else value
        problem = text_problem(id_text, FEATURE_ID_BYTES_MAX)
        if problem is not None:
            raise InvalidArgument(f"The feature id {problem}", field="id")
        return str(id_text)

    def _next_position(self) -> int:
        self._position += 1
        return self._position - 1

    def _notice(self, entry: Entry, message: str) -> None:
        self._notices.append(Notice(id=entry.id, position=entry.position, message=message))

    def _failed(self, error: InvalidArgument, position: int, feature: Any) -> None:
        if isinstance(feature, dict):
            error.feature_id = readable_id(feature.get("id"))
        error.position = position
        if self._request.transactional:
            raise error
        self._errors.append(error)


def _check_id_alone(rules: Modification) -> None:
    if rules.if_exists in (IfExists.PATCH, IfExists.MERGE, IfExists.REPLACE):
        raise InvalidArgument(
            f"onFeatureExists={rules.if_exists.value} needs a whole feature, not an id alone: send "
            "the feature, or delete it",
            field="onFeatureExists",
        )


def plain_entries(entries: Iterable[Entry], prefix: str | None) -> dict[str, Entry]:
    """Return entries by their ids without the collection's prefix; the last duplicate wins."""
    by_id: dict[str, Entry] = {}
    for entry in entries:
        id = entry.id.removeprefix(prefix or "") or entry.id
        by_id[id] = entry if id == entry.id else entry.renamed(id)
    return by_id
