"""Tokens: accepted ones, and every reason for refusal."""

import base64
import hashlib
import hmac
import json
import math
import time
import traceback
from pathlib import Path
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.hub.auth import resources
from naksha.hub.auth.keys import Algorithm, Key, KeyFile, KeyForm, SigningKey
from naksha.hub.auth.rights import NO_RIGHTS, Right
from naksha.hub.auth.tokens import TokenPolicy, TokenValidator, actor_of, mint
from naksha.hub.pipeline.request_context import UsageLimits
from naksha.model import limits
from naksha.model.errors import Unauthorized
from tests.hub.auth.key_files import (
    OTHER_SECRET,
    SECRET,
    ec_key,
    jwk,
    private_pem,
    public_pem,
    rsa_key,
    write,
    write_set,
)

CLAIMS = {
    "appId": "editor",
    "userId": "ann",
    "realm": "maps",
    "urm": {"naksha": {"useSpaces": [{"id": "roads"}]}},
    "limits": {"maxSpaces": 5, "maxFeaturesPerSpace": -1},
}
NOT_OURS = "not signed with a key of this server"


def signing(algorithm: Algorithm, kid: str | None = None) -> SigningKey:
    match algorithm:
        case Algorithm.HS256:
            return Key(algorithm, SECRET, kid)
        case Algorithm.RS256:
            return Key(algorithm, rsa_key(), kid)
        case Algorithm.ES256:
            return Key(algorithm, ec_key(), kid)


def public_file(algorithm: Algorithm, path: Path) -> KeyFile:
    match algorithm:
        case Algorithm.HS256:
            return write(path, SECRET, KeyForm.SECRET)
        case Algorithm.RS256:
            return write(path, public_pem(rsa_key()), KeyForm.PEM)
        case Algorithm.ES256:
            return write(path, public_pem(ec_key()), KeyForm.PEM)


def by_hand(header: dict[str, Any], claims: dict[str, Any], secret: bytes | None) -> str:
    """Build a token that breaks the rules."""

    def text(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    signed = f"{text(json.dumps(header).encode())}.{text(json.dumps(claims).encode())}"
    if secret is None:
        return f"{signed}."
    return f"{signed}.{text(hmac.digest(secret, signed.encode(), hashlib.sha256))}"


def in_an_hour() -> int:
    return int(time.time()) + 3_600


@pytest.fixture
def tokens(tmp_path: Path) -> TokenValidator:
    """With the secret."""
    return TokenValidator([public_file(Algorithm.HS256, tmp_path / "secret")])


# ---- Signatures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_a_token_names_the_actor(tmp_path: Path, algorithm: Algorithm) -> None:
    tokens = TokenValidator([public_file(algorithm, tmp_path / "key")])
    actor = tokens.actor(mint(signing(algorithm), CLAIMS))
    assert (actor.app_id, actor.author, actor.realm) == ("editor", "ann", "maps")
    assert actor.limits == UsageLimits(max_spaces=5)
    assert not actor.is_anonymous
    assert actor.rights.allows(Right.USE_SPACES, resources.space("roads"))
    assert not actor.rights.allows(Right.USE_SPACES, resources.space("places"))


@pytest.mark.parametrize("algorithm", list(Algorithm))
@pytest.mark.parametrize("kid", [None, "one"])
def test_a_key_set_serves_every_algorithm(
    tmp_path: Path, algorithm: Algorithm, kid: str | None
) -> None:
    named = [
        jwk(signing(each).material, "one" if each is algorithm else each.value)
        for each in Algorithm
    ]
    tokens = TokenValidator([write_set(tmp_path / "set", *named)])
    assert tokens.actor(mint(signing(algorithm, kid), CLAIMS)).app_id == "editor"


def test_the_named_key_must_have_signed_it(tmp_path: Path) -> None:
    tokens = TokenValidator([write_set(tmp_path / "set", jwk(SECRET, "a"), jwk(OTHER_SECRET, "b"))])
    assert tokens.actor(mint(Key(Algorithm.HS256, SECRET, "a"), CLAIMS)).app_id == "editor"
    for kid in ("b", "c"):
        with pytest.raises(Unauthorized, match=NOT_OURS):
            tokens.actor(mint(Key(Algorithm.HS256, SECRET, kid), CLAIMS))


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_a_token_of_another_key_is_refused(tmp_path: Path, algorithm: Algorithm) -> None:
    tokens = TokenValidator([public_file(algorithm, tmp_path / "key")])
    others: list[SigningKey] = [
        Key(Algorithm.HS256, OTHER_SECRET),
        Key(Algorithm.RS256, rsa_key(number=1)),
        *(signing(other) for other in Algorithm if other is not algorithm),
    ]
    for other in others:
        with pytest.raises(Unauthorized, match=NOT_OURS):
            tokens.actor(mint(other, CLAIMS))


@pytest.mark.parametrize("algorithm", list(Algorithm))
@pytest.mark.parametrize("none", ["none", "None", "NONE", "", None])
def test_a_token_without_signature_is_refused(
    tmp_path: Path, algorithm: Algorithm, none: str | None
) -> None:
    tokens = TokenValidator([public_file(algorithm, tmp_path / "key")])
    claims = {**CLAIMS, "exp": in_an_hour()}
    for secret in (None, b""):
        with pytest.raises(Unauthorized, match=NOT_OURS):
            tokens.actor(by_hand({"typ": "JWT", "alg": none}, claims, secret))
    with pytest.raises(Unauthorized, match=NOT_OURS):
        tokens.actor(by_hand({"typ": "JWT"}, claims, SECRET))


@pytest.mark.parametrize("algorithm", [Algorithm.RS256, Algorithm.ES256])
def test_a_public_key_is_not_accepted_as_a_secret(tmp_path: Path, algorithm: Algorithm) -> None:
    file = public_file(algorithm, tmp_path / "key")
    key = rsa_key() if algorithm is Algorithm.RS256 else ec_key()
    key_set = write_set(tmp_path / "set", jwk(key, "one"))
    claims = {**CLAIMS, "exp": in_an_hour()}
    for secret in (public_pem(key), public_pem(key).strip(), file.path.read_bytes()):
        for tokens in (TokenValidator([file]), TokenValidator([key_set])):
            for more in ({}, {"kid": "one"}):
                with pytest.raises(Unauthorized, match=NOT_OURS):
                    tokens.actor(by_hand({"typ": "JWT", "alg": "HS256", **more}, claims, secret))


def test_the_algorithm_is_that_of_the_key_though_the_signature_be_right(tmp_path: Path) -> None:
    """Signed with the right key, by an algorithm that the key is not for."""
    tokens = TokenValidator(
        [public_file(algorithm, tmp_path / algorithm) for algorithm in Algorithm]
    )
    claims = {**CLAIMS, "exp": in_an_hour()}
    for key, algorithm in (
        (SECRET * 2, "HS512"),
        (private_pem(rsa_key()), "RS512"),
        (private_pem(rsa_key()), "PS256"),
    ):
        with pytest.raises(Unauthorized, match=NOT_OURS):
            tokens.actor(jwt.encode(claims, key, algorithm=algorithm))
    assert (
        tokens.actor(jwt.encode(claims, private_pem(rsa_key()), algorithm="RS256")).app_id
        == "editor"
    )


def test_a_key_that_the_token_brings_along_is_not_used(tokens: TokenValidator) -> None:
    header = {"typ": "JWT", "alg": "HS256", "jwk": jwk(OTHER_SECRET, "mine"), "jku": "http://x"}
    with pytest.raises(Unauthorized, match=NOT_OURS):
        tokens.actor(by_hand(header, {**CLAIMS, "exp": in_an_hour()}, OTHER_SECRET))


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_changed_token_is_refused(tokens: TokenValidator, part: int) -> None:
    token = mint(signing(Algorithm.HS256), CLAIMS)
    assert tokens.actor(token).app_id == "editor"
    parts = token.split(".")
    parts[part] = parts[part][:5] + ("A" if parts[part][5] != "A" else "B") + parts[part][6:]
    with pytest.raises(Unauthorized, match=NOT_OURS):
        tokens.actor(".".join(parts))


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b.c",
        "Bearer x",
        "\ud800.a.b",
        "é.a.b",
        "x" * (limits.TOKEN_BYTES_MAX + 1),
        by_hand({"alg": "HS256", "kid": 7}, {}, SECRET),
        by_hand({"alg": ["HS256"]}, {}, SECRET),
        by_hand({"alg": "HS256", "crit": ["b64"], "b64": False}, {}, SECRET),
        base64.urlsafe_b64encode(b"[" * 6_000).decode() + ".e30.e30",
    ],
)
def test_malformed_tokens_are_rejected(tokens: TokenValidator, token: str) -> None:
    with pytest.raises(Unauthorized, match=NOT_OURS):
        tokens.actor(token)


@given(st.text(max_size=80))
def test_any_text_is_refused(text: str) -> None:
    tokens = TokenValidator([KeyFile(Path(__file__), KeyForm.SECRET)])
    with pytest.raises(Unauthorized):
        tokens.actor(text)


# ---- Claims --------------------------------------------------------------------------------------


def signed(**claims: Any) -> str:
    """A token with further claims, or with None without one."""
    found = {**CLAIMS, "exp": in_an_hour(), **claims}
    kept = {name: value for name, value in found.items() if value is not None}
    return by_hand({"typ": "JWT", "alg": "HS256"}, kept, SECRET)


def test_a_token_holds_for_its_time(tokens: TokenValidator) -> None:
    now, leeway = int(time.time()), limits.TOKEN_LEEWAY_SECONDS
    assert tokens.actor(signed(exp=now - leeway + 10)).app_id == "editor"
    assert tokens.actor(signed(nbf=now + leeway - 10)).app_id == "editor"
    with pytest.raises(Unauthorized, match=r"expired; request a new one .*'exp'"):
        tokens.actor(signed(exp=now - leeway - 1))
    with pytest.raises(Unauthorized, match="not valid yet"):
        tokens.actor(signed(nbf=now + leeway + 10))
    with pytest.raises(Unauthorized, match="not valid yet"):
        tokens.actor(signed(iat=now + leeway + 10))


def test_a_token_without_end_is_refused_unless_allowed(tmp_path: Path) -> None:
    file = public_file(Algorithm.HS256, tmp_path / "secret")
    endless = mint(signing(Algorithm.HS256), CLAIMS, seconds=None)
    with pytest.raises(Unauthorized, match="lacks the claim exp"):
        TokenValidator([file]).actor(endless)
    tokens = TokenValidator([file], TokenPolicy(needs_expiry=False))
    assert tokens.actor(endless).app_id == tokens.actor(endless).app_id == "editor"
    with pytest.raises(Unauthorized, match="expired"):
        tokens.actor(signed(exp=1))
    far = signed(exp=10**400)
    assert tokens.actor(far) is tokens.actor(far)


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat"])
@pytest.mark.parametrize("value", ["soon", math.inf, -math.inf, math.nan, [], {}, [1]])
def test_a_time_that_is_none_is_refused(tmp_path: Path, claim: str, value: Any) -> None:
    file = public_file(Algorithm.HS256, tmp_path / "secret")
    for trust in (TokenPolicy(), TokenPolicy(needs_expiry=False)):
        with pytest.raises(Unauthorized):
            TokenValidator([file], trust).actor(signed(**{claim: value}))


def test_audience_and_issuer_count_if_given(tmp_path: Path) -> None:
    file = public_file(Algorithm.HS256, tmp_path / "secret")
    free = TokenValidator([file])
    assert free.actor(signed(aud="others", iss="elsewhere")).app_id == "editor"
    tokens = TokenValidator([file], TokenPolicy(audience="naksha", issuer="us"))
    assert tokens.actor(signed(aud=["others", "naksha"], iss="us")).app_id == "editor"
    for claims, told in (
        ({"aud": "others", "iss": "us"}, "does not include 'naksha'"),
        ({"aud": "naksha", "iss": "them"}, "not issued by 'us'"),
        ({"iss": "us"}, "lacks the claim aud"),
        ({"aud": "naksha"}, "lacks the claim iss"),
    ):
        with pytest.raises(Unauthorized, match=told):
            tokens.actor(signed(**claims))


@pytest.mark.parametrize(
    ("claims", "app_id", "author"),
    [
        ({"appId": "a"}, "a", None),
        ({"cid": "c", "aid": "x"}, "c", "x"),
        ({"appId": "a", "cid": "c", "userId": "u", "aid": "x"}, "a", "u"),
        ({"appId": None, "cid": "c", "userId": None}, "c", None),
        ({"appId": None, "aid": "x"}, "x", "x"),
    ],
)
def test_app_and_author_by_either_name(
    claims: dict[str, Any], app_id: str, author: str | None
) -> None:
    actor = actor_of(claims)
    assert (actor.app_id, actor.author) == (app_id, author)
    assert actor.realm == "default"
    assert actor.rights == NO_RIGHTS
    assert actor.limits == UsageLimits()


@pytest.mark.parametrize(
    ("claims", "field"),
    [
        ({"appId": None, "userId": None}, "appId"),
        ({"appId": ""}, "appId"),
        ({"appId": 7}, "appId"),
        ({"appId": None, "cid": "x" * 257}, "cid"),
        ({"userId": ""}, "userId"),
        ({"userId": None, "aid": ["ann"]}, "aid"),
        ({"realm": ""}, "realm"),
        ({"realm": "::system::"}, "realm"),
        ({"realm": "../maps"}, "realm"),
        ({"realm": "maps\n"}, "realm"),
        ({"realm": 7}, "realm"),
        ({"urm": []}, "urm"),
        ({"urm": {"naksha": {"useSpaces": [7]}}}, "urm.naksha.useSpaces[0]"),
        ({"limits": 5}, "limits"),
        ({"limits": {"maxSpaces": "5"}}, "limits.maxSpaces"),
        ({"limits": {"maxSpaces": True}}, "limits.maxSpaces"),
        ({"limits": {"maxFeaturesPerSpace": 1.5}}, "limits.maxFeaturesPerSpace"),
    ],
)
def test_a_claim_that_cannot_be_used_is_named(
    tokens: TokenValidator, claims: dict[str, Any], field: str
) -> None:
    with pytest.raises(Unauthorized) as told:
        tokens.actor(signed(**claims))
    assert told.value.field == field


def test_an_error_does_not_repeat_the_token(tokens: TokenValidator) -> None:
    for token in (
        signed(exp=1),
        signed(appId=""),
        mint(Key(Algorithm.HS256, OTHER_SECRET), CLAIMS),
        "not-a-token-but-a-password",
    ):
        with pytest.raises(Unauthorized) as told:
            tokens.actor(token)
        said = "".join(traceback.format_exception(told.value)) + repr(vars(told.value))
        assert not [part for part in token.split(".") if part in said]


# ---- What is remembered --------------------------------------------------------------------------


def test_a_known_token_is_not_checked_again(
    tokens: TokenValidator, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = mint(signing(Algorithm.HS256), CLAIMS)
    actor = tokens.actor(token)
    monkeypatch.setattr(jwt, "decode", lambda *_, **__: pytest.fail("checked again"))
    assert tokens.actor(token) is actor


def test_a_known_token_ends_with_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = TokenValidator(
        [public_file(Algorithm.HS256, tmp_path / "secret")], TokenPolicy(leeway_s=5)
    )
    token = signed(exp=int(time.time()) + 1)
    assert tokens.actor(token).app_id == "editor"
    end = int(time.time()) + 60
    monkeypatch.setattr("time.time", lambda: end)
    checked: list[str] = []

    def decode(found: str, *_: Any, **__: Any) -> None:
        checked.append(found)
        raise jwt.ExpiredSignatureError

    monkeypatch.setattr(jwt, "decode", decode)
    with pytest.raises(Unauthorized, match="expired"):
        tokens.actor(token)
    assert checked == [token]


def test_only_so_many_are_remembered(
    tokens: TokenValidator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TOKENS_KEPT_MAX", 2)
    first, second, third = (signed(appId=name) for name in ("first", "second", "third"))
    known = tokens.actor(first)
    tokens.actor(second)
    assert tokens.actor(first) is known, "it was used last now"
    tokens.actor(third)
    assert tokens.actor(first) is known
    assert len(tokens._known) == 2


def test_a_changed_key_ends_tokens_and_begins_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TOKEN_KEYS_SECONDS", 0)
    file = public_file(Algorithm.HS256, tmp_path / "secret")
    tokens = TokenValidator([file])
    old = mint(signing(Algorithm.HS256), CLAIMS)
    new = mint(Key(Algorithm.HS256, OTHER_SECRET), CLAIMS)
    assert tokens.actor(old).app_id == "editor"
    with pytest.raises(Unauthorized, match=NOT_OURS):
        tokens.actor(new)
    file.path.write_bytes(OTHER_SECRET)
    assert tokens.actor(new).app_id == "editor"
    with pytest.raises(Unauthorized, match=NOT_OURS):
        tokens.actor(old)


def test_a_minted_token_has_a_time_and_names_its_key() -> None:
    token = mint(signing(Algorithm.ES256, "one"), CLAIMS, seconds=60)
    claims = jwt.decode(token, options={"verify_signature": False})
    assert 59 <= claims["exp"] - time.time() <= 61
    assert jwt.get_unverified_header(token) == {"typ": "JWT", "alg": "ES256", "kid": "one"}
    dated = mint(signing(Algorithm.HS256), {"exp": 7})
    assert jwt.decode(dated, options={"verify_signature": False})["exp"] == 7
