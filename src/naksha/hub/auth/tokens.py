"""Tokens: who an actor is and what he may do, signed by somebody we trust.

    tokens = Tokens([KeyFile.parse("jwks:/etc/naksha/keys.json")])
    actor = tokens.actor("eyJhbGciOi…")

A token is checked with the key that its `kid` names, or with every key when it names none, and
always by the algorithm of the key; what the token says of its algorithm must only agree.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import time
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jwt
import msgspec

from naksha.catalog.realms import check_realm_id
from naksha.hub.auth.keys import CheckingKey, KeyFile, KeyRing, SigningKey
from naksha.hub.auth.rights import parse_rights
from naksha.hub.pipeline.request_context import DEFAULT_REALM, Actor, UsageLimits
from naksha.model import limits
from naksha.model.errors import InvalidArgument, Unauthorized
from naksha.model.identity.names import check_app_id, check_author

APP_CLAIMS: Final = ("appId", "cid")
AUTHOR_CLAIMS: Final = ("userId", "aid")
"""Naksha's name first, then XYZ's; the first one that is there counts."""
_DOTS: Final = 2
"""Between the parts of a signed token."""
_TIME_MAX: Final = 2**53
"""Seconds; a token may name later ones, which do not fit a float at last."""
_UNTRUSTED: Final = (
    "The token is not signed with a key of this server, or not whole; "
    "get one from whoever has the keys"
)


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """Which signed tokens are accepted."""

    audience: str | None = None
    """What `aud` must contain, if anything is given."""
    issuer: str | None = None
    """What `iss` must be, if anything is given."""
    leeway_s: float = limits.TOKEN_LEEWAY_SECONDS
    needs_expiry: bool = True
    """Refuse tokens without `exp`: they can only be called back by changing the key."""


class Tokens:
    """Checks tokens. For one thread, like an event loop; nothing here waits."""

    def __init__(self, files: Sequence[KeyFile], trust: Trust | None = None) -> None:
        """Raises InvalidArgument when a file of keys cannot be used."""
        self._ring = KeyRing(files)
        self._trust = trust if trust is not None else Trust()
        self._options: Any = {
            "require": ["exp"] if self._trust.needs_expiry else [],
            "verify_aud": self._trust.audience is not None,
            "verify_iss": self._trust.issuer is not None,
            "verify_sub": False,
            "verify_jti": False,
        }
        # By the digest, so that no token is kept; with the time up to which it holds.
        self._known: OrderedDict[bytes, tuple[float, Actor]] = OrderedDict()

    def actor(self, token: str) -> Actor:
        """Who sends a token.

        Raises:
            Unauthorized: It is not valid, or not for us; the message says what to do.
        """
        if not token.isascii() or len(token) > limits.TOKEN_BYTES_MAX:
            raise Unauthorized(_UNTRUSTED)
        if self._ring.refresh():
            self._known.clear()
        token = _inflated(token)
        digest = hashlib.sha256(token.encode()).digest()
        known = self._known.get(digest)
        if known is not None and time.time() < known[0]:
            self._known.move_to_end(digest)
            return known[1]
        claims = self._claims(token)
        actor = actor_of(claims)
        self._known[digest] = (self._holds_until(claims), actor)
        if len(self._known) > limits.TOKENS_KEPT_MAX:
            self._known.popitem(last=False)
        return actor

    def _claims(self, token: str) -> dict[str, Any]:
        try:
            kid = jwt.get_unverified_header(token).get("kid")
        except jwt.PyJWTError:
            raise Unauthorized(_UNTRUSTED) from None
        for key in self._ring.for_token(kid):
            claims = self._claims_by(key, token)
            if claims is not None:
                return claims
        raise Unauthorized(_UNTRUSTED)

    def _claims_by(self, key: CheckingKey, token: str) -> dict[str, Any] | None:
        """What a token claims; None when another key has signed it, if any. Errors are not chained:
        some repeat parts of the token."""
        trust = self._trust
        try:
            found: dict[str, Any] = jwt.decode(
                token,
                key.material,
                algorithms=[key.algorithm.value],
                options=self._options,
                audience=trust.audience,
                issuer=trust.issuer,
                leeway=trust.leeway_s,
            )
        except jwt.ExpiredSignatureError:
            raise Unauthorized("The token has expired; get a new one", field="exp") from None
        except jwt.ImmatureSignatureError:
            raise Unauthorized(
                "The token is not valid yet; wait, or set the clocks", field="nbf"
            ) from None
        except jwt.InvalidAudienceError:
            raise Unauthorized(
                f"The token is not meant for {trust.audience!r}; get one that is", field="aud"
            ) from None
        except jwt.InvalidIssuerError:
            raise Unauthorized(
                f"The token is not issued by {trust.issuer!r}; get one that is", field="iss"
            ) from None
        except jwt.MissingRequiredClaimError as error:
            raise Unauthorized(
                f"The token has no {error.claim}; get one that has", field=error.claim
            ) from None
        except jwt.PyJWTError:
            return None
        return found

    def _holds_until(self, claims: Mapping[str, Any]) -> float:
        if "exp" not in claims:
            return math.inf
        return min(int(claims["exp"]), _TIME_MAX) + self._trust.leeway_s


def actor_of(claims: Mapping[str, Any]) -> Actor:
    """The actor that a token claims to be from.

    Raises:
        Unauthorized: A claim is missing, or not what it should be; the message names it.
    """
    app_claim, app_id = _first(claims, APP_CLAIMS)
    author_claim, author = _first(claims, AUTHOR_CLAIMS)
    if app_id is None:  # XYZ's tokens may name the account alone
        app_claim, app_id = author_claim, author
    if app_id is None:
        raise Unauthorized(
            "The token names no application; it needs the claim appId, cid or aid",
            field=APP_CLAIMS[0],
        )
    try:
        return Actor(
            app_id=check_app_id(app_id, field=app_claim),
            author=check_author(author, field=author_claim),
            realm=_realm(claims.get("realm", DEFAULT_REALM)),
            rights=parse_rights(claims.get("urm")),
            limits=_limits(claims.get("limits")),
        )
    except InvalidArgument as error:
        raise Unauthorized(
            f"The token has a claim that cannot be used: {error.message}", field=error.field
        ) from error


def mint(key: SigningKey, claims: Mapping[str, Any], *, seconds: float | None = 3_600) -> str:
    """A token with these claims, signed with a secret or private key, that holds for some time; for
    ever when that is None."""
    now = int(time.time())
    dated: dict[str, Any] = {"iat": now}
    if seconds is not None:
        dated["exp"] = math.ceil(now + seconds)
    headers = {"kid": key.kid} if key.kid is not None else None
    return jwt.encode(
        {**dated, **claims}, key.material, algorithm=key.algorithm.value, headers=headers
    )


def _inflated(token: str) -> str:
    """A token that XYZ's clients send compressed: Deflate, in base64. The `+` of base64 arrives as
    a space where the token is a query parameter."""
    if token.count(".") == _DOTS:
        return token
    inflater = zlib.decompressobj()
    try:
        packed = base64.b64decode(token.replace(" ", "+"), altchars=None, validate=True)
        text = inflater.decompress(packed, limits.TOKEN_BYTES_MAX).decode("ascii")
    except (binascii.Error, zlib.error, UnicodeDecodeError):
        raise Unauthorized(_UNTRUSTED) from None
    if not inflater.eof:
        raise Unauthorized(_UNTRUSTED)
    return text


def _first(claims: Mapping[str, Any], names: Sequence[str]) -> tuple[str, Any]:
    for name in names:
        if claims.get(name) is not None:
            return name, claims[name]
    return names[0], None


def _realm(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"must be a string, not {type(value).__name__}", field="realm")
    check_realm_id(value)
    return value


def _limits(value: object) -> UsageLimits:
    if value is None:
        return UsageLimits()
    if not isinstance(value, dict):
        raise InvalidArgument(f"must be an object, not {type(value).__name__}", field="limits")
    return UsageLimits(
        max_spaces=_limit(value, "maxSpaces"),
        max_features_per_space=_limit(value, "maxFeaturesPerSpace"),
    )


def _limit(found: Mapping[str, Any], name: str) -> int | None:
    """None for any number, which XYZ writes as -1."""
    value = found.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument("must be a whole number", field=f"limits.{name}")
    return value if value >= 0 else None
