"""Authentication: bearer tokens, and anonymous access from the server's own machine only.

Without keys the server listens on loopback only, and every client is the anonymous actor. With keys
a token is required, unless the setting `anonymous` is on and the peer is on loopback. In both cases
a request that only seems to be local is not anonymous: one that a proxy forwarded, or that a page
of another origin sends from a browser on this machine.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.types import Scope

from naksha.hub.auth.keys import KeyFile
from naksha.hub.auth.tokens import TokenPolicy, TokenValidator
from naksha.hub.pipeline.request_context import Actor, anonymous
from naksha.model.errors import Unauthorized
from naksha.server.middleware.request_record import RequestRecord
from naksha.server.process.settings import ServerSettings, is_loopback

_ACCESS_TOKEN: Final = "access_token"  # noqa: S105 - the name of a parameter
_PASSED_ON: Final = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via"})
"""Headers that proxies add."""


class Authenticator:
    """Authenticator: determines the actor of a request."""

    def __init__(self, settings: ServerSettings) -> None:
        """Load the keys; raises InvalidArgument when they cannot be used."""
        self.tokens: Final = _tokens(settings)
        self.lets_in_anonymous: Final = self.tokens is None or settings.anonymous
        self._anonymous: Final = anonymous()

    def actor(self, scope: Scope, record: RequestRecord) -> Actor:
        """Return the actor of a request, or raise Unauthorized."""
        token = _token_of(scope, record)
        if token is None:
            return self._without_token(scope, record)
        if self.tokens is None:
            raise Unauthorized(
                "This server has no keys and accepts no tokens; send the request without a token, "
                "or start the server with --keys"
            )
        return self.tokens.actor(token)

    def _without_token(self, scope: Scope, record: RequestRecord) -> Actor:
        if not self.lets_in_anonymous:
            raise Unauthorized(
                'Missing token: send the header "Authorization: Bearer <token>" or the parameter '
                '"access_token"'
            )
        why = _not_local_reason(scope, record)
        if why is not None:
            raise Unauthorized(f"A token is required, because {why}")
        return self._anonymous


def _token_of(scope: Scope, record: RequestRecord) -> str | None:
    """Return the token of a request; the header takes precedence over the parameter."""
    header = record.field(b"authorization")
    if header is not None:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthorized('Malformed Authorization header: expected "Bearer <token>"')
        return token.strip()
    query: bytes = scope["query_string"]
    if _ACCESS_TOKEN.encode() not in query:
        return None
    found = parse_qs(query.decode("latin-1")).get(_ACCESS_TOKEN)
    return found[0] if found else None


def _tokens(settings: ServerSettings) -> TokenValidator | None:
    if not settings.keys:
        return None
    trust = TokenPolicy(
        audience=settings.token_audience or None,
        issuer=settings.token_issuer or None,
        needs_expiry=settings.token_expiry,
    )
    return TokenValidator([KeyFile.parse(text) for text in settings.keys], trust)


def _not_local_reason(scope: Scope, record: RequestRecord) -> str | None:
    """Return why a request is not local to this machine; None if it is."""
    client = scope.get("client")
    if client is None or not is_loopback(client[0]):
        return "the request comes from another machine"
    passed_on = _PASSED_ON & record.fields.keys()
    if passed_on:
        return f"a proxy forwarded the request (it has the header {min(passed_on).decode()})"
    host, origin = record.field(b"host"), record.field(b"origin")
    if host is not None and not _is_local(f"//{host}"):
        return f"the Host header is {host!r}, which is not a name of the loopback interface"
    if origin is not None and not _is_local(origin):
        return f"the request comes from a web page of another origin, {origin!r}"
    return None


@lru_cache(maxsize=1024)  # a client usually sends the same host in all its requests
def _is_local(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False
