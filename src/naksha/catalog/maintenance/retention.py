"""How much of a pointer's log is kept."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from naksha.catalog.commits import Commit
from naksha.model import limits
from naksha.model.errors import InvalidArgument


class Retention(msgspec.Struct, frozen=True):
    """The newest commits, and those that were the newest one within a time: whichever is more."""

    commits: int = limits.HISTORY_COMMITS_KEPT
    seconds: float = limits.HISTORY_SECONDS_KEPT

    def __post_init__(self) -> None:
        if self.commits < 1 or self.seconds < 0:
            raise InvalidArgument(
                "At least the newest commit is kept, and no negative time", field="retention"
            )

    def keeps(self, commit: Commit, newer: Commit, head: Commit, now_us: int) -> bool:
        """Whether a commit is kept that was the newest one until another came next."""
        is_new = head.seq - commit.seq < self.commits
        return is_new or newer.at_us > now_us - self.seconds * 1_000_000


DEFAULT: Final = Retention()


class RetentionRule(msgspec.Struct, frozen=True):
    """What holds for the pointers whose names match a pattern, in which `*` is any text."""

    pattern: str
    retention: Retention


def retention_of(name: str, rules: Sequence[RetentionRule]) -> Retention:
    """What the first rule that matches says."""
    for rule in rules:
        if fnmatchcase(name, rule.pattern):
            return rule.retention
    return DEFAULT
