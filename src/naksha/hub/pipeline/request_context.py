"""Who asks, and how long he waits: what accompanies a request on its whole way."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec

from naksha.hub.auth.rights import Rights, all_rights
from naksha.hub.auth.row_rights import Guard, Marks

DEFAULT_REALM: Final = "default"
"""The realm of a token that names none."""
ANONYMOUS_APP: Final = "anonymous"
"""As whom somebody without a token writes; he is let in on loopback only."""


class UsageLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a token allows to pile up; None is any number."""

    max_spaces: int | None = None
    max_features_per_space: int | None = None


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """An application, and the person for whom it acts, in one realm."""

    app_id: str
    author: str | None = None
    realm: str = DEFAULT_REALM
    rights: Rights
    limits: UsageLimits = UsageLimits()
    is_anonymous: bool = False

    @property
    def owner(self) -> str:
        """Whose the things are that the actor makes."""
        return self.author if self.author is not None else self.app_id


def anonymous(realm: str = DEFAULT_REALM) -> Actor:
    """Somebody without a token: he may do everything, so only let him in whom you know."""
    return Actor(app_id=ANONYMOUS_APP, realm=realm, rights=all_rights(), is_anonymous=True)


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """One request, and all requests that handlers make for it."""

    actor: Actor
    stream_id: str
    """Names the request in logs and answers."""
    deadline: float | None = None
    """When an answer is of no use any more, on the clock `time.monotonic`."""
    depth: int = 0
    """How many spaces have sent it on."""
    guards: tuple[Guard, ...] = ()
    """Of the spaces that it came through: who carries out a write asks them about every change."""
    check_turn: Callable[[], None] | None = None
    """Of a delivery: Fenced when it is somebody else's turn by now. It is asked at the last moment,
    since any wait before may have been a long one."""

    @classmethod
    def within(cls, actor: Actor, stream_id: str, seconds: float) -> Context:
        """The context of a request that begins now."""
        return cls(actor=actor, stream_id=stream_id, deadline=time.monotonic() + seconds)

    @property
    def seconds_left(self) -> float | None:
        """None when there is no hurry; 0 when it is too late."""
        if self.deadline is None:
            return None
        return max(0.0, self.deadline - time.monotonic())

    def prolonged(self, seconds: float) -> Context:
        """The same with so much time from now on."""
        return msgspec.structs.replace(self, deadline=time.monotonic() + seconds)

    def guarded(self, guard: Guard) -> Context:
        """The same with one guard more."""
        return msgspec.structs.replace(self, guards=(*self.guards, guard))

    def check_change(self, old: Marks | None, new: Marks | None) -> None:
        """Forbidden when one of the guards does not let a feature become another one."""
        for guard in self.guards:
            guard.check(old, new)

    def deeper(self) -> Context:
        """The same one space further."""
        return msgspec.structs.replace(self, depth=self.depth + 1)
