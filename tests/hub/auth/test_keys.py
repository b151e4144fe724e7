"""Key files: their format, and the refusal of weak or wrong keys."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from naksha.hub.auth.keys import (
    Algorithm,
    Key,
    KeyFile,
    KeyForm,
    KeyRing,
    read_keys,
    read_signing_key,
)
from naksha.model import limits
from naksha.model.errors import InvalidArgument
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


@pytest.mark.parametrize("line_end", [b"", b"\n", b"\r\n"])
def test_a_secret_is_for_hs256_and_ends_before_the_line(tmp_path: Path, line_end: bytes) -> None:
    (key,) = read_keys(write(tmp_path / "key", SECRET + line_end, KeyForm.SECRET))
    assert (key.algorithm, key.material) == (Algorithm.HS256, SECRET)


@pytest.mark.parametrize("pem", [private_pem, public_pem])
def test_a_pem_is_for_the_algorithm_of_its_key(tmp_path: Path, pem: Any) -> None:
    (key,) = read_keys(write(tmp_path / "rsa", pem(rsa_key()), KeyForm.PEM, "one"))
    assert (key.algorithm, key.kid) == (Algorithm.RS256, "one")
    (key,) = read_keys(write(tmp_path / "ec", pem(ec_key()), KeyForm.PEM))
    assert (key.algorithm, key.kid) == (Algorithm.ES256, None)


def test_a_set_has_many_keys_and_those_of_others_are_left_out(tmp_path: Path) -> None:
    file = write_set(
        tmp_path / "keys.json",
        jwk(SECRET, "secret"),
        jwk(rsa_key(), "rsa", alg="RS256", use="sig"),
        jwk(ec_key(), "ec"),
        jwk(rsa_key(), "to encrypt", use="enc"),
        jwk(rsa_key(), "longer", alg="RS512"),
        jwk(rsa_key(), "confused", alg="HS256"),
        jwk(ec_key(ec.SECP384R1), "larger"),
        {"kty": "OKP", "crv": "Ed25519", "kid": "another", "x": "AAAA"},
    )
    assert [(key.kid, key.algorithm) for key in read_keys(file)] == [
        ("secret", Algorithm.HS256),
        ("rsa", Algorithm.RS256),
        ("ec", Algorithm.ES256),
    ]


def pem_of_another_kind() -> bytes:
    return (
        ed25519.Ed25519PrivateKey.generate()
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def ssh_key() -> bytes:
    return (
        rsa_key()
        .public_key()
        .public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    )


def encrypted_pem() -> bytes:
    return rsa_key().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"x"),
    )


REFUSED: dict[str, tuple[KeyForm, Any, str]] = {
    "a short secret": (KeyForm.SECRET, lambda: b"x" * 31, "31 bytes; HS256 needs at least 32"),
    "an empty secret": (KeyForm.SECRET, lambda: b"\n", "0 bytes"),
    "a public key as a secret": (KeyForm.SECRET, lambda: public_pem(rsa_key()), "not a secret"),
    "after a byte order mark": (
        KeyForm.SECRET,
        lambda: b"\xef\xbb\xbf" + public_pem(rsa_key()),
        "not a secret",
    ),
    "an SSH key as a secret": (KeyForm.SECRET, ssh_key, "not a secret"),
    "a key set as a secret": (
        KeyForm.SECRET,
        lambda: json.dumps({"keys": [jwk(rsa_key(), "a")]}).encode(),
        "not a secret",
    ),
    "a short RSA key": (KeyForm.PEM, lambda: public_pem(rsa_key(1024)), "1024 bits.* 2048"),
    "a private one": (KeyForm.PEM, lambda: private_pem(rsa_key(1024)), "1024 bits.* 2048"),
    "another curve": (KeyForm.PEM, lambda: public_pem(ec_key(ec.SECP384R1)), "unsupported key"),
    "another kind of key": (KeyForm.PEM, pem_of_another_kind, "unsupported key"),
    "an encrypted key": (KeyForm.PEM, encrypted_pem, "encrypted"),
    "a secret as a PEM": (KeyForm.PEM, lambda: SECRET, "unencrypted PEM key"),
    "too much": (KeyForm.PEM, lambda: b"x" * (limits.TOKEN_KEY_BYTES_MAX + 1), "TOKEN_KEY_BYTES"),
    "no JSON": (KeyForm.JWKS, lambda: b"{", "is not a JWKS"),
    "a list": (KeyForm.JWKS, lambda: b"[]", "is not a JWKS"),
    "no keys": (KeyForm.JWKS, lambda: b"{}", "is not a JWKS"),
    "keys that are none": (KeyForm.JWKS, lambda: b'{"keys": 1}', "is not a JWKS"),
    "a key that is none": (KeyForm.JWKS, lambda: b'{"keys": ["a"]}', "is not a JWKS"),
    "an empty set": (KeyForm.JWKS, lambda: b'{"keys": []}', "does not contain a key for"),
    "a key without its numbers": (
        KeyForm.JWKS,
        lambda: b'{"keys": [{"kty": "RSA", "kid": "one"}]}',
        "incomplete key 'one'",
    ),
    "a short secret in a set": (
        KeyForm.JWKS,
        lambda: json.dumps({"keys": [jwk(b"x" * 31, "a")]}).encode(),
        "31 bytes",
    ),
    "a short RSA key in a set": (
        KeyForm.JWKS,
        lambda: json.dumps({"keys": [jwk(rsa_key(1024), "a")]}).encode(),
        "1024 bits",
    ),
}


@pytest.mark.parametrize(("form", "content", "told"), REFUSED.values(), ids=REFUSED)
def test_weak_or_malformed_keys_are_rejected(
    tmp_path: Path, form: KeyForm, content: Any, told: str
) -> None:
    file = write(tmp_path / "key", content(), form)
    with pytest.raises(InvalidArgument, match=told):
        read_keys(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"nowhere.* cannot be read: No such file"):
        KeyRing([KeyFile(tmp_path / "nowhere", KeyForm.PEM)])


def test_a_key_is_not_printed() -> None:
    key: Key[bytes] = Key(Algorithm.HS256, SECRET, "one")
    assert repr(key) == str(key) == "Key(HS256, kid='one')"


def test_tokens_are_signed_with_a_secret_or_a_private_key(tmp_path: Path) -> None:
    secret = read_signing_key(write(tmp_path / "secret", SECRET, KeyForm.SECRET, "one"))
    assert (secret.algorithm, secret.kid) == (Algorithm.HS256, "one")
    private = read_signing_key(write(tmp_path / "rsa", private_pem(rsa_key()), KeyForm.PEM))
    assert private.algorithm is Algorithm.RS256
    for file in (
        write(tmp_path / "public", public_pem(rsa_key()), KeyForm.PEM),
        write_set(tmp_path / "set", jwk(SECRET, "a")),
    ):
        with pytest.raises(InvalidArgument, match="does not contain a private key"):
            read_signing_key(file)
    with pytest.raises(InvalidArgument, match="1024 bits"):
        read_signing_key(write(tmp_path / "weak", private_pem(rsa_key(1024)), KeyForm.PEM))


@pytest.mark.parametrize("form", list(KeyForm))
def test_a_file_is_given_with_its_form(form: KeyForm) -> None:
    assert KeyFile.parse(f"{form.value}:a:b/c") == KeyFile(Path("a:b/c"), form)


@pytest.mark.parametrize("text", ["", "key.pem", "pem:", "der:key", ":key"])
def test_a_file_without_a_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="secret:PATH, pem:PATH or jwks:PATH"):
        KeyFile.parse(text)


# ---- The ring ------------------------------------------------------------------------------------


def kids(ring: KeyRing, kid: str | None) -> list[str | None]:
    return [key.kid for key in ring.for_token(kid)]


def test_a_token_names_its_key(tmp_path: Path) -> None:
    ring = KeyRing(
        [
            write_set(tmp_path / "set", jwk(SECRET, "a"), jwk(rsa_key(), "b")),
            write(tmp_path / "plain", OTHER_SECRET, KeyForm.SECRET),
        ]
    )
    assert kids(ring, "b") == ["b"]
    assert kids(ring, None) == ["a", "b", None]
    assert kids(ring, "c") == [None], "a key without a name may have any"


def test_key_ids_are_unique_and_the_number_is_limited(tmp_path: Path) -> None:
    one = write_set(tmp_path / "one", jwk(SECRET, "a"))
    two = write_set(tmp_path / "two", jwk(OTHER_SECRET, "a"))
    with pytest.raises(InvalidArgument, match="several keys with the same kid: a"):
        KeyRing([one, two])
    many = [jwk(SECRET, str(n)) for n in range(limits.TOKEN_KEYS_MAX + 1)]
    with pytest.raises(InvalidArgument, match="TOKEN_KEYS_MAX = 32"):
        KeyRing([write_set(tmp_path / "many", *many)])
    with pytest.raises(InvalidArgument, match="pass one with --keys"):
        KeyRing([])


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at with every token."""
    monkeypatch.setattr(limits, "TOKEN_KEYS_SECONDS", 0)


@pytest.mark.usefixtures("hasty")
def test_a_changed_file_is_reloaded(tmp_path: Path) -> None:
    file = write_set(tmp_path / "set", jwk(SECRET, "a"))
    other = write_set(tmp_path / "other", jwk(SECRET, "z"))
    ring = KeyRing([file, other])
    assert not ring.refresh()
    new = tmp_path / "new"
    write_set(new, jwk(OTHER_SECRET, "b"))
    new.replace(file.path)
    assert ring.refresh()
    assert kids(ring, None) == ["b", "z"]
    assert not ring.refresh()


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("damage", ["half written", "a name twice"])
def test_a_damaged_file_leaves_its_keys_as_they_were(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    file = write_set(tmp_path / "set", jwk(SECRET, "a"))
    ring = KeyRing([file, write_set(tmp_path / "other", jwk(SECRET, "z"))])
    if damage == "half written":
        file.path.write_bytes(b'{"keys": [')
    else:
        write_set(file.path, jwk(OTHER_SECRET, "z"))
    with caplog.at_level(logging.ERROR):
        ring.refresh()
        assert not ring.refresh()
    assert len(caplog.records) == 1, "it is logged once"
    assert kids(ring, None) == ["a", "z"]
    write_set(file.path, jwk(OTHER_SECRET, "b"))
    assert ring.refresh()
    assert kids(ring, None) == ["b", "z"]


@pytest.mark.usefixtures("hasty")
def test_the_keys_of_a_deleted_file_are_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write_set(tmp_path / "set", jwk(SECRET, "a"))
    other = write_set(tmp_path / "other", jwk(SECRET, "z"))
    ring = KeyRing([file, other])
    file.path.unlink()
    with caplog.at_level(logging.ERROR):
        assert ring.refresh()
        assert not ring.refresh()
    assert len(caplog.records) == 1, "it is logged once"
    assert kids(ring, None) == ["z"]
    other.path.unlink()
    assert ring.refresh()
    assert kids(ring, None) == []
    write_set(file.path, jwk(OTHER_SECRET, "b"))
    assert ring.refresh()
    assert kids(ring, None) == ["b"]


@pytest.mark.usefixtures("hasty")
def test_a_damaged_file_does_not_hold_up_the_others(tmp_path: Path) -> None:
    one = write_set(tmp_path / "one", jwk(SECRET, "a"))
    two = write_set(tmp_path / "two", jwk(SECRET, "z"))
    ring = KeyRing([one, two])
    write_set(one.path, jwk(OTHER_SECRET, "bb"))
    two.path.write_bytes(b"{")
    assert ring.refresh()
    assert kids(ring, None) == ["bb", "z"]
    write_set(two.path, jwk(OTHER_SECRET, "bb"))
    assert not ring.refresh(), "now a name is there twice"
    write_set(one.path, jwk(OTHER_SECRET, "c"))
    assert ring.refresh()
    assert kids(ring, None) == ["c", "bb"]


def test_files_are_looked_at_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    file = write_set(tmp_path / "set", jwk(SECRET, "a"))
    ring = KeyRing([file])
    write_set(file.path, jwk(OTHER_SECRET, "bb"))
    now += 0.99
    assert not ring.refresh()
    now += 0.02
    assert ring.refresh()
