"""Who asks. A token says so; without one somebody is let in only from the machine itself.

Without keys the server listens on loopback only, and whoever reaches it is the anonymous actor.
With keys a token is needed, unless the operator has said `anonymous` and the peer is on loopback.
Either way a request that only seems to come from here is not anonymous: one that a proxy has passed
on, or that a page of another origin sends from a browser on this machine.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.types import Scope

from naksha.hub.auth.keys import KeyFile
from naksha.hub.auth.tokens import Tokens, Trust
from naksha.hub.pipeline.request_context import Actor, anonymous
from naksha.model.errors import Unauthorized
from naksha.server.middleware.request_context import Visit
from naksha.server.process.settings import Settings, is_loopback

ACCESS_TOKEN: Final = "access_token"  # noqa: S105 - the name of a parameter
_PASSED_ON: Final = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via"})
"""What proxies add."""


class Doorkeeper:
    """Decides who a request is from."""

    def __init__(self, settings: Settings) -> None:
        """Raises InvalidArgument when keys cannot be used."""
        self.tokens: Final = _tokens(settings)
        self.lets_in_anonymous: Final = self.tokens is None or settings.anonymous
        self._anonymous: Final = anonymous()

    def actor(self, scope: Scope, visit: Visit) -> Actor:
        """Who asks, else Unauthorized."""
        token = token_of(scope, visit)
        if token is None:
            return self._without_token(scope, visit)
        if self.tokens is None:
            raise Unauthorized(
                "This server has no keys, so it knows no tokens; come without, or start it "
                "with --keys"
            )
        return self.tokens.actor(token)

    def _without_token(self, scope: Scope, visit: Visit) -> Actor:
        if not self.lets_in_anonymous:
            raise Unauthorized(
                "A token is needed: Authorization: Bearer …, or the parameter access_token"
            )
        why = _why_not_from_here(scope, visit)
        if why is not None:
            raise Unauthorized(f"A token is needed, because {why}")
        return self._anonymous


def token_of(scope: Scope, visit: Visit) -> str | None:
    """The token that comes with a request; the header field counts before the parameter."""
    given = visit.field(b"authorization")
    if given is not None:
        scheme, _, token = given.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthorized("Authorization is understood as: Bearer, and a token")
        return token.strip()
    query: bytes = scope["query_string"]
    if ACCESS_TOKEN.encode() not in query:
        return None
    found = parse_qs(query.decode("latin-1")).get(ACCESS_TOKEN)
    return found[0] if found else None


def _tokens(settings: Settings) -> Tokens | None:
    if not settings.keys:
        return None
    trust = Trust(
        audience=settings.token_audience or None,
        issuer=settings.token_issuer or None,
        needs_expiry=settings.token_expiry,
    )
    return Tokens([KeyFile.parse(text) for text in settings.keys], trust)


def _why_not_from_here(scope: Scope, visit: Visit) -> str | None:
    """Why a request is not one from the machine itself; None if it is."""
    client = scope.get("client")
    if client is None or not is_loopback(client[0]):
        return "you come from another machine"
    passed_on = _PASSED_ON & visit.fields.keys()
    if passed_on:
        return f"a proxy has passed the request on (it has the field {min(passed_on).decode()})"
    host, origin = visit.field(b"host"), visit.field(b"origin")
    if host is not None and not _is_here(f"//{host}"):
        return f"the server is called {host!r}, which is not a name of this machine alone"
    if origin is not None and not _is_here(origin):
        return f"a page of {origin!r} asks, not somebody at this machine"
    return None


@lru_cache(maxsize=1024)  # who asks often calls the server by the same name
def _is_here(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False
