"""JWT validation: derives the actor and their rights from a signed token.

    tokens = Tokens([KeyFile.parse("jwks:/etc/naksha/keys.json")])
    actor = tokens.actor("eyJhbGciOi…")

A token is verified with the key that its `kid` names, or with every key if it has no `kid`, and
always with the algorithm of the key; the `alg` of the token must match it.
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
from naksha.model.value_text import value_text

APP_CLAIMS: Final = ("appId", "cid")
AUTHOR_CLAIMS: Final = ("userId", "aid")
"""Naksha's claim first, then XYZ's; the first one present is used."""
_DOTS: Final = 2
"""Number of dots in a signed token."""
_TIME_MAX: Final = 2**53
"""Upper bound of `exp` in seconds: a larger integer in a token may not fit a float."""
_UNTRUSTED: Final = (
    "The token is malformed or not signed with a key of this server; "
    "request a new token from the issuer"
)


class TokenPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions that accepted tokens must meet beyond a valid signature."""

    audience: str | None = None
    """The value that `aud` must contain; None accepts any."""
    issuer: str | None = None
    """The value that `iss` must have; None accepts any."""
    leeway_s: float = limits.TOKEN_LEEWAY_SECONDS
    needs_expiry: bool = True
    """Reject tokens without `exp`: only replacing the key would revoke them."""


class TokenValidator:
    """Token validator with a cache. Not thread-safe; use it from one event loop. Never blocks."""

    def __init__(self, files: Sequence[KeyFile], trust: TokenPolicy | None = None) -> None:
        """Load the keys; raise InvalidArgument if a key file is invalid."""
        self._ring = KeyRing(files)
        self._trust = trust if trust is not None else TokenPolicy()
        self._options: Any = {
            "require": ["exp"] if self._trust.needs_expiry else [],
            "verify_aud": self._trust.audience is not None,
            "verify_iss": self._trust.issuer is not None,
            "verify_sub": False,
            "verify_jti": False,
        }
        # Keyed by digest, so that no token stays in memory; with the time until which it is valid.
        self._known: OrderedDict[bytes, tuple[float, Actor]] = OrderedDict()

    def actor(self, token: str) -> Actor:
        """Return the actor of a token.

        Raises:
            Unauthorized: The token is invalid or not for this server; the message says what to do.
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
        """Return the claims of a token, or None if this key did not sign it.

        Errors are not chained, because some contain parts of the token.
        """
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
            raise Unauthorized("The token has expired; request a new one", field="exp") from None
        except jwt.ImmatureSignatureError:
            raise Unauthorized(
                "The token is not valid yet; retry later, or synchronize the clocks", field="nbf"
            ) from None
        except jwt.InvalidAudienceError:
            raise Unauthorized(
                f"The token's audience does not include {trust.audience!r}; request one that does",
                field="aud",
            ) from None
        except jwt.InvalidIssuerError:
            raise Unauthorized(
                f"The token is not issued by {trust.issuer!r}; request one from that issuer",
                field="iss",
            ) from None
        except jwt.MissingRequiredClaimError as error:
            raise Unauthorized(
                f"The token lacks the claim {error.claim}; request a token that has it",
                field=error.claim,
            ) from None
        except jwt.PyJWTError:
            return None
        return found

    def _holds_until(self, claims: Mapping[str, Any]) -> float:
        if "exp" not in claims:
            return math.inf
        return min(int(claims["exp"]), _TIME_MAX) + self._trust.leeway_s


def actor_of(claims: Mapping[str, Any]) -> Actor:
    """Build the actor from the claims of a token.

    Raises:
        Unauthorized: A claim is missing or invalid; the message names it.
    """
    app_claim, app_id = _first(claims, APP_CLAIMS)
    author_claim, author = _first(claims, AUTHOR_CLAIMS)
    if app_id is None:  # XYZ tokens may contain only the account
        app_claim, app_id = author_claim, author
    if app_id is None:
        raise Unauthorized(
            "The token does not name an application; it needs the claim appId, cid or aid",
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
            f"The token has an invalid claim: {error.message}", field=error.field
        ) from error


def mint(key: SigningKey, claims: Mapping[str, Any], *, seconds: float | None = 3_600) -> str:
    """Create a token with the given claims, signed with a secret or a private key.

    It expires after `seconds`, or never if that is None.
    """
    now = int(time.time())
    dated: dict[str, Any] = {"iat": now}
    if seconds is not None:
        dated["exp"] = math.ceil(now + seconds)
    headers = {"kid": key.kid} if key.kid is not None else None
    return jwt.encode(
        {**dated, **claims}, key.material, algorithm=key.algorithm.value, headers=headers
    )


def _inflated(token: str) -> str:
    """Decompress a token that an XYZ client sends as base64 of Deflate.

    The `+` of base64 arrives as a space if the token is a query parameter.
    """
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
        raise InvalidArgument(
            f'The claim "realm" must be a string, not {value_text(value)}', field="realm"
        )
    check_realm_id(value)
    return value


def _limits(value: object) -> UsageLimits:
    if value is None:
        return UsageLimits()
    if not isinstance(value, dict):
        raise InvalidArgument(
            f'The claim "limits" must be an object, not {value_text(value)}', field="limits"
        )
    return UsageLimits(
        max_spaces=_limit(value, "maxSpaces"),
        max_features_per_space=_limit(value, "maxFeaturesPerSpace"),
    )


def _limit(found: Mapping[str, Any], name: str) -> int | None:
    """Return a limit, or None for unlimited, which XYZ writes as -1."""
    value = found.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(
            f"The usage limit limits.{name} must be an integer, not {value!r:.40}",
            field=f"limits.{name}",
        )
    return value if value >= 0 else None
