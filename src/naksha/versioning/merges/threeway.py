"""Three-way merge of one feature."""

from __future__ import annotations

from collections.abc import Sequence

from naksha.model.merge import merge3, same
from naksha.model.state import State
from naksha.spi.support.write_merge import content_of
from naksha.versioning.records import UndecidedFeature
from naksha.versioning.state_writer import StateWrite, feature_of


def merge_states(
    name: str, base: State | None, ours: State | None, theirs: State | None
) -> StateWrite | UndecidedFeature | None:
    """Return the write over `ours` that adds what `theirs` changed since `base`.

    Return None if there is nothing to write, and Undecided if both sides changed the same place.
    """
    contents = [None if each is None else content_of(each.feature) for each in (base, ours, theirs)]
    was, mine, other = contents
    if same(mine, other) or same(was, other):
        return None
    id_ = next(each.id for each in (ours, theirs, base) if each is not None)
    if same(was, mine):
        return StateWrite(id_, ours, None if other is None else feature_of(other))
    if mine is None or other is None:
        return undecided(name, id_, (base, ours, theirs), ("",))
    merged = merge3({} if was is None else was, mine, other)
    if merged.conflicts:
        paths = tuple(each.path for each in merged.conflicts)
        return undecided(name, id_, (base, ours, theirs), paths)
    if same(merged.value, mine):
        return None
    return StateWrite(id_, ours, feature_of(merged.value))


def undecided(
    name: str, id_: str, sides: Sequence[State | None], paths: tuple[str, ...]
) -> UndecidedFeature:
    """Return the report of a feature that both sides changed."""
    base, ours, theirs = (None if each is None else each.feature for each in sides)
    return UndecidedFeature(
        collection=name, id=id_, base=base, ours=ours, theirs=theirs, paths=paths
    )


def conflict_between(name: str, id_: str, sides: Sequence[State | None]) -> UndecidedFeature:
    """Return the report of a feature that is known to be in conflict (base, ours, theirs).

    It covers the whole feature if no single place is contested, as without a common base.
    """
    found = merge_states(name, *sides)
    return found if isinstance(found, UndecidedFeature) else undecided(name, id_, sides, ("",))


def differ(one: State | None, other: State | None) -> bool:
    """Return whether two states of a feature have different content."""
    contents = [None if each is None else content_of(each.feature) for each in (one, other)]
    return not same(*contents)
