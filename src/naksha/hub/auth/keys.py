"""The keys that tokens are signed with, from files that may change while the hub runs.

Every key is for one algorithm, which follows from the key and from what its file is said to be,
never from a token. What a file holds is not guessed: the text of a public key would make a fine
secret, and everybody knows it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import jwt
import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from naksha.model import limits
from naksha.model.errors import InvalidArgument

_log: Final = logging.getLogger(__name__)

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
Material = TypeVar("Material")


class Algorithm(StrEnum):
    """How a token can be signed."""

    HS256 = "HS256"
    RS256 = "RS256"
    ES256 = "ES256"


class KeyForm(StrEnum):
    """What is in a file of keys."""

    SECRET = "secret"  # noqa: S105 - the name of a form
    """A secret for HS256. A line end after it is not a part of it."""
    PEM = "pem"
    """A public key, or a private one, whose public part is used then: RSA or P-256."""
    JWKS = "jwks"
    """A JSON Web Key Set."""


class KeyFile(msgspec.Struct, frozen=True):
    """Where keys are."""

    path: Path
    form: KeyForm
    kid: str | None = None
    """The `kid` that tokens name a secret or PEM key by; keys of a set have their own."""

    @classmethod
    def parse(cls, text: str) -> KeyFile:
        """`secret:PATH`, `pem:PATH` or `jwks:PATH`."""
        form, colon, path = text.partition(":")
        if not colon or not path or form not in list(KeyForm):
            raise InvalidArgument(
                f"A file of keys is given as secret:PATH, pem:PATH or jwks:PATH, not {text!r}",
                field="keys",
            )
        return cls(Path(path), KeyForm(form))


class Key(Generic[Material]):
    """A key, and the only algorithm that it is used with."""

    __slots__ = ("algorithm", "kid", "material")

    def __init__(self, algorithm: Algorithm, material: Material, kid: str | None = None) -> None:
        self.algorithm = algorithm
        self.material = material
        self.kid = kid

    def __repr__(self) -> str:
        """Without the key itself, which must not get into a log."""
        return f"Key({self.algorithm.value}, kid={self.kid!r})"


CheckingKey = Key[bytes | PublicKey]
SigningKey = Key[bytes | PrivateKey]


class KeyRing:
    """All keys that tokens are checked with. For one thread: whoever checks them."""

    def __init__(self, files: Sequence[KeyFile]) -> None:
        """Raises InvalidArgument when a file cannot be used."""
        if not files:
            raise InvalidArgument("Tokens cannot be checked without keys", field="keys")
        self._files = files
        self._stamps = [_stamp(file.path) for file in files]
        self._read = [read_keys(file) for file in files]
        self._keys = _joined(self._read)
        self._looked = time.monotonic()

    def for_token(self, kid: str | None) -> Sequence[CheckingKey]:
        """The keys that may have signed a token which names one, or none."""
        named = [key for key in self._keys if key.kid == kid] if kid is not None else []
        if named:
            return named
        return self._keys if kid is None else [key for key in self._keys if key.kid is None]

    def refresh(self) -> bool:
        """Read files again that have changed; whether any has. The keys of a file that is gone are
        gone; one that cannot be used (it may be half written) leaves its keys as they were."""
        now = time.monotonic()
        if now - self._looked < limits.TOKEN_KEYS_SECONDS:
            return False
        self._looked = now
        stamps = [_stamp(file.path) for file in self._files]
        if stamps == self._stamps:
            return False
        for n, (old, new) in enumerate(zip(self._stamps, stamps, strict=True)):
            if new is None and old is not None:
                self._read[n] = []
                path = self._files[n].path
                _log.error("The file %s is gone; its keys are not accepted any more", path)
            elif old != new:
                self._read_anew(n)
        self._stamps = stamps
        try:
            self._keys = _joined(self._read)
        except InvalidArgument as error:
            _log.error("All keys stay as they were: %s", error)
            return False
        _log.info("Keys were read anew: %s", self._keys)
        return True

    def _read_anew(self, n: int) -> None:
        try:
            self._read[n] = read_keys(self._files[n])
        except InvalidArgument as error:
            _log.error("The keys of this file stay as they were: %s", error)


# ---- Files ---------------------------------------------------------------------------------------


def read_keys(file: KeyFile) -> list[CheckingKey]:
    """The keys of a file, to check tokens with.

    Raises:
        InvalidArgument: It cannot be read, holds something else, or a key is weak.
    """
    content = _content(file.path)
    if file.form is KeyForm.SECRET:
        return [Key(Algorithm.HS256, _secret(content, file.path), file.kid)]
    if file.form is KeyForm.PEM:
        return [_public(_pem(content, file.path), file.kid, file.path)]
    return _jwks(content, file.path)


def read_signing_key(file: KeyFile) -> SigningKey:
    """The key of a file that holds a secret or a private key."""
    content = _content(file.path)
    if file.form is KeyForm.SECRET:
        return Key(Algorithm.HS256, _secret(content, file.path), file.kid)
    key = _pem(content, file.path) if file.form is KeyForm.PEM else None
    if not isinstance(key, PrivateKey):
        raise _unfit(file.path, "holds no private key; tokens are signed with a secret or a PEM")
    return Key(_public(key, None, file.path).algorithm, key, file.kid)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(limits.TOKEN_KEY_BYTES_MAX + 1)
    except OSError as error:
        raise _unfit(path, f"cannot be read: {error.strerror}") from error
    if len(content) > limits.TOKEN_KEY_BYTES_MAX:
        raise _unfit(path, f"has more than TOKEN_KEY_BYTES_MAX = {limits.TOKEN_KEY_BYTES_MAX}")
    return content


def _secret(content: bytes, path: Path) -> bytes:
    secret = content.removesuffix(b"\n").removesuffix(b"\r")
    if b"-----BEGIN" in secret or secret.startswith((b"ssh-", b"ecdsa-", b"{")):
        raise _unfit(path, "holds a key, not a secret; say pem: or jwks:")
    return _strong(secret, path)


def _strong(secret: bytes, path: Path) -> bytes:
    if len(secret) < limits.SECRET_BYTES_MIN:
        raise _unfit(
            path,
            f"has a secret of {len(secret)} bytes; HS256 needs {limits.SECRET_BYTES_MIN} "
            "(openssl rand -hex 32)",
        )
    return secret


def _pem(content: bytes, path: Path) -> object:
    load: Any = serialization.load_pem_public_key
    arguments: dict[str, Any] = {}
    if b"PRIVATE KEY-----" in content:
        load, arguments = serialization.load_pem_private_key, {"password": None}
    try:
        key: object = load(content, **arguments)
    except (ValueError, TypeError) as error:
        raise _unfit(path, "holds no key in PEM, or an encrypted one") from error
    return key


def _public(key: object, kid: str | None, path: Path) -> CheckingKey:
    """A key by its kind, which must be one of ours and strong enough."""
    if isinstance(key, PrivateKey):
        key = key.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < limits.RSA_BITS_MIN:
            raise _unfit(
                path, f"has an RSA key of {key.key_size} bits; RS256 needs {limits.RSA_BITS_MIN}"
            )
        return Key(Algorithm.RS256, key, kid)
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
        return Key(Algorithm.ES256, key, kid)
    raise _unfit(path, "holds a key of another kind than RSA (RS256) and P-256 (ES256)")


# ---- Key sets ------------------------------------------------------------------------------------


class _Jwk(msgspec.Struct):
    """What is needed to know whether a key is one of ours."""

    kty: str
    kid: str | None = None
    alg: str | None = None
    use: str = "sig"
    crv: str | None = None

    @property
    def algorithm(self) -> Algorithm | None:
        """None when it is for something else: another algorithm, or to encrypt with."""
        found = _ALGORITHMS.get((self.kty, self.crv))
        is_ours = self.use == "sig" and (self.alg is None or self.alg == found)
        return found if is_ours else None


_ALGORITHMS: Final = {
    ("oct", None): Algorithm.HS256,
    ("RSA", None): Algorithm.RS256,
    ("EC", "P-256"): Algorithm.ES256,
}


def _jwks(content: bytes, path: Path) -> list[CheckingKey]:
    """Those keys of a set that are for an algorithm of ours; a set may well have others."""
    try:
        listed = msgspec.json.decode(content, type=dict[str, Any])["keys"]
        found = [(data, msgspec.convert(data, _Jwk)) for data in listed]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise _unfit(path, 'holds no key set, which is {"keys": [{"kty": …}, …]}') from error
    keys = []
    for data, jwk in found:
        if jwk.algorithm is None:
            _log.info("%s: the key %r is for another purpose", path, jwk.kid)
            continue
        keys.append(_from_jwk(data, jwk, jwk.algorithm, path))
    if not keys:
        raise _unfit(path, "holds no key for HS256, RS256 or ES256")
    return keys


def _from_jwk(data: dict[str, Any], jwk: _Jwk, algorithm: Algorithm, path: Path) -> CheckingKey:
    try:
        material: object = jwt.PyJWK(data, algorithm.value).key
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError):
        # The error would repeat the key.
        raise _unfit(path, f"has a key {jwk.kid!r} that is not complete") from None
    if isinstance(material, bytes):
        return Key(algorithm, _strong(material, path), jwk.kid)
    return _public(material, jwk.kid, path)


def _joined(read: Iterable[Sequence[CheckingKey]]) -> list[CheckingKey]:
    keys = list(chain.from_iterable(read))
    if len(keys) > limits.TOKEN_KEYS_MAX:
        raise InvalidArgument(
            f"{len(keys)} keys are more than TOKEN_KEYS_MAX = {limits.TOKEN_KEYS_MAX}; "
            "take those out that sign no tokens any more",
            field="keys",
        )
    names = [key.kid for key in keys if key.kid is not None]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgument(f"Several keys have the kid {', '.join(twice)}", field="keys")
    return keys


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Changes with the file; None when there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _unfit(path: Path, problem: str) -> InvalidArgument:
    return InvalidArgument(f"The file {str(path)!r} {problem}", field="keys")
