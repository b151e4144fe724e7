"""The simplest model of versioning: every version of every line is a whole copy."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from naksha.model.merge import ABSENT, Side, merge3, same

Content = dict[str, Any]
"""Properties by feature id."""


@dataclass
class Line:
    """Main or a branch: what it held at every version, and what it has in common with its
    parent."""

    parent: str | None
    versions: dict[int, Content]
    common: Content = field(default_factory=dict)
    own: int = 0
    """The version from which on it is what it is: its base, or its last rebase."""


@dataclass
class Merged:
    """Result of a three-way merge: new content, changed features, and conflicts."""

    content: Content
    changed: list[str]
    undecided: list[str]


class Model:
    """Lines, tags and the number of the last version."""

    def __init__(self) -> None:
        self.last = 0
        self.lines: dict[str, Line] = {"main": Line(None, {0: {}})}
        self.tags: dict[str, Content] = {}
        self.owner: dict[int, str] = {}

    def now(self, line: str) -> Content:
        return copy.deepcopy(self.lines[line].versions[self.last])

    def at(self, line: str, version: int) -> Content:
        return self.lines[line].versions[version]

    def commit(self, line: str, content: Content) -> None:
        """A new version; the other lines are as they were."""
        for name, each in self.lines.items():
            each.versions[self.last + 1] = content if name == line else self.now(name)
        self.last += 1
        self.owner[self.last] = line

    def branch(self, name: str, parent: str, version: int) -> None:
        """Until the base it is its parent, since then it is the base."""
        base = self.at(parent, version)
        self.lines[name] = Line(
            parent,
            {n: base if n > version else self.at(parent, n) for n in range(self.last + 1)},
            base,
            version,
        )

    def children(self, line: str) -> list[str]:
        """Return the lines made from a line."""
        return [name for name, each in self.lines.items() if each.parent == line]

    def ever(self, line: str, first: int, last: int, name: str, value: Any) -> list[str]:
        """The features that had this value of a property at some version of a stretch."""
        versions = [self.at(line, each) for each in range(first, last + 1)]
        ids = {id_ for version in versions for id_ in version}
        return sorted(
            id_
            for id_ in ids
            if any(id_ in each and same(each[id_].get(name, ABSENT), value) for each in versions)
        )

    def steps(self, line: str, first: int, last: int) -> list[tuple[str, Any, Any]]:
        """(feature, before, after) for every change in a stretch, by feature and time."""
        found = [
            (id_, number, *sides)
            for number in range(first + 1, last + 1)
            for id_, sides in self.difference(
                self.at(line, number - 1), self.at(line, number)
            ).items()
        ]
        return [(id_, old, new) for id_, _, old, new in sorted(found, key=lambda it: it[:2])]

    @staticmethod
    def difference(old: Content, new: Content) -> dict[str, tuple[Any, Any]]:
        return {
            id_: (old.get(id_), new.get(id_))
            for id_ in sorted(old.keys() | new.keys())
            if not same(old.get(id_), new.get(id_))
        }

    @classmethod
    def merge(cls, base: Content, ours: Content, theirs: Content, prefer: str | None) -> Merged:
        """Apply the changes of `theirs` since `base` to `ours`."""
        content, undecided = copy.deepcopy(ours), []
        for id_, (was, new) in cls.difference(base, theirs).items():
            mine = ours.get(id_)
            if same(mine, new):
                continue
            if same(mine, was):
                result: Any = new
            elif mine is None or new is None:
                undecided.append(id_)
                result = new if prefer == "theirs" else mine
            else:
                side: Side = "theirs" if prefer == "theirs" else "ours"
                merged = merge3({} if was is None else was, mine, new, prefer=side)
                if merged.conflicts:
                    undecided.append(id_)
                result = merged.value
            if result is None:
                content.pop(id_, None)
            else:
                content[id_] = result
        changed = sorted(cls.difference(ours, content))
        return Merged(content, changed, undecided if prefer is None else [])
