"""Retention of pointer logs."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from naksha.catalog.commits import Commit
from naksha.model import limits
from naksha.model.errors import InvalidArgument


class Retention(msgspec.Struct, frozen=True):
    """The newest commits, and those that were the newest within a time: whichever is more."""

    commits: int = limits.HISTORY_COMMITS_KEPT
    seconds: float = limits.HISTORY_SECONDS_KEPT

    def __post_init__(self) -> None:
        if self.commits < 1 or self.seconds < 0:
            raise InvalidArgument(
                "A Retention must keep at least 1 commit and at least 0 seconds of a pointer's "
                f"log, not {self.commits} commits and {self.seconds} seconds",
                field="retention",
            )

    def keeps(self, commit: Commit, newer: Commit, head: Commit, now_us: int) -> bool:
        """Return whether a commit is kept; it was the newest one until `newer` followed."""
        is_new = head.seq - commit.seq < self.commits
        return is_new or newer.at_us > now_us - self.seconds * 1_000_000


DEFAULT: Final = Retention()


class RetentionRule(msgspec.Struct, frozen=True):
    """Retention of the pointers whose names match a pattern, in which `*` is any text."""

    pattern: str
    retention: Retention


def retention_of(name: str, rules: Sequence[RetentionRule]) -> Retention:
    """Return the retention of the first rule that matches."""
    for rule in rules:
        if fnmatchcase(name, rule.pattern):
            return rule.retention
    return DEFAULT
