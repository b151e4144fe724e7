"""Context of a request: what is resolved when it arrives, and passed along with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from naksha.hub.auth.rights import Rights, all_rights
from naksha.hub.auth.row_rights import RightsAttributes, RowGuard

if TYPE_CHECKING:
    from naksha.hub.pipeline.configuration import Configuration

DEFAULT_REALM: Final = "default"
"""The realm of tokens without a realm."""
_ANONYMOUS_APP: Final = "anonymous"
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
    return Actor(app_id=_ANONYMOUS_APP, realm=realm, rights=all_rights(), is_anonymous=True)


class RequestContext(msgspec.Struct, frozen=True, kw_only=True):
    """Context of one request and of all requests that handlers send for it.

    It is resolved on arrival (`RealmHub.resolved`); nothing below looks any of it up again.
    """

    actor: Actor
    """The actor; once the context is resolved, with the rights of their roles."""
    configuration: Configuration | None = None
    """The realm's configuration for the whole request; None until the context is resolved."""
    stream_id: str
    """Identifies the request in logs and responses."""
    is_json: bool = False
    """Whether the features of the request were parsed from JSON and are still such values, so that
    a storage need not check that."""
    deadline: float | None = None
    """Time when the client stops waiting, on the clock `time.monotonic`."""
    depth: int = 0
    """Number of spaces that have forwarded the request."""
    guards: tuple[RowGuard, ...] = ()
    """Guards of the spaces that it came through; a write is checked with each of them."""
    targets: dict[Hashable, Any] = msgspec.field(default_factory=dict)
    """Targets at fixed versions that the request has reached, by handler and reference."""
    check_lease: Callable[[], None] | None = None
    """Of a delivery: raises Fenced if the lease has moved to another instance. Called immediately
    before sending, as any wait before may have been long."""

    @property
    def configured(self) -> Configuration:
        """The realm's configuration of a resolved context."""
        assert self.configuration is not None, "the context is not resolved"
        return self.configuration

    @classmethod
    def within(
        cls, actor: Actor, stream_id: str, seconds: float, *, is_json: bool = False
    ) -> RequestContext:
        """Create the context of a request that begins now."""
        until = time.monotonic() + seconds
        return cls(actor=actor, stream_id=stream_id, deadline=until, is_json=is_json)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline, 0 if it has passed, None without a deadline."""
        if self.deadline is None:
            return None
        return max(0.0, self.deadline - time.monotonic())

    def guarded(self, guard: RowGuard) -> RequestContext:
        """Return the context with an additional guard."""
        return msgspec.structs.replace(self, guards=(*self.guards, guard))

    def check_change(self, old: RightsAttributes | None, new: RightsAttributes | None) -> None:
        """Raise Forbidden if a guard rejects the change from the old to the new state."""
        for guard in self.guards:
            guard.check(old, new)

    def deeper(self) -> RequestContext:
        """Return the context for a request to another space, one level deeper."""
        return msgspec.structs.replace(self, depth=self.depth + 1)
