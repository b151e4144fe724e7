"""Request context: actor, deadline and guards, passed along with a request."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec

from naksha.hub.auth.rights import Rights, all_rights
from naksha.hub.auth.row_rights import RightsAttributes, RowGuard

DEFAULT_REALM: Final = "default"
"""The realm of tokens without a realm."""
ANONYMOUS_APP: Final = "anonymous"
"""App id of clients without a token, which are accepted on loopback only."""


class UsageLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Usage limits of a token; None means unlimited."""

    max_spaces: int | None = None
    max_features_per_space: int | None = None


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """An application, and the person on whose behalf it acts, in one realm."""

    app_id: str
    author: str | None = None
    realm: str = DEFAULT_REALM
    rights: Rights
    limits: UsageLimits = UsageLimits()
    is_anonymous: bool = False

    @property
    def owner(self) -> str:
        """The owner of objects that the actor creates."""
        return self.author if self.author is not None else self.app_id


def anonymous(realm: str = DEFAULT_REALM) -> Actor:
    """Return the actor of a client without a token. It has all rights: use it on loopback only."""
    return Actor(app_id=ANONYMOUS_APP, realm=realm, rights=all_rights(), is_anonymous=True)


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Context of one request and of all requests that handlers send for it."""

    actor: Actor
    stream_id: str
    """Identifies the request in logs and responses."""
    deadline: float | None = None
    """Time when the client stops waiting, on the clock `time.monotonic`."""
    depth: int = 0
    """Number of spaces that have forwarded the request."""
    guards: tuple[RowGuard, ...] = ()
    """Guards of the spaces that it came through; a write is checked with each of them."""
    check_turn: Callable[[], None] | None = None
    """Of a delivery: raises Fenced if the lease has moved to another instance. Called immediately
    before sending, as any wait before may have been long."""

    @classmethod
    def within(cls, actor: Actor, stream_id: str, seconds: float) -> Context:
        """Create the context of a request that begins now."""
        return cls(actor=actor, stream_id=stream_id, deadline=time.monotonic() + seconds)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline, 0 if it has passed, None without a deadline."""
        if self.deadline is None:
            return None
        return max(0.0, self.deadline - time.monotonic())

    def prolonged(self, seconds: float) -> Context:
        """Return the context with a new deadline, counted from now."""
        return msgspec.structs.replace(self, deadline=time.monotonic() + seconds)

    def guarded(self, guard: RowGuard) -> Context:
        """Return the context with an additional guard."""
        return msgspec.structs.replace(self, guards=(*self.guards, guard))

    def check_change(self, old: RightsAttributes | None, new: RightsAttributes | None) -> None:
        """Raise Forbidden if a guard rejects the change from the old to the new state."""
        for guard in self.guards:
            guard.check(old, new)

    def deeper(self) -> Context:
        """Return the context for a request to another space, one level deeper."""
        return msgspec.structs.replace(self, depth=self.depth + 1)
