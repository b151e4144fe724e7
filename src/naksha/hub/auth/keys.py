"""Keys that tokens are signed with, loaded from files and reloaded when these change.

Every key is used with one algorithm, which follows from the key and the declared form of its file,
never from a token. The form is declared, not guessed: a public key misread as an HS256 secret
would let anyone sign tokens.
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
    """Supported signature algorithms."""

    HS256 = "HS256"
    RS256 = "RS256"
    ES256 = "ES256"


class KeyForm(StrEnum):
    """The declared content of a key file."""

    SECRET = "secret"  # noqa: S105 - the name of a form
    """A secret for HS256. A trailing line end is not part of it."""
    PEM = "pem"
    """A public or private key, RSA or P-256; of a private key, the public part is used."""
    JWKS = "jwks"
    """A JSON Web Key Set."""


class KeyFile(msgspec.Struct, frozen=True):
    """Path and form of a key file."""

    path: Path
    form: KeyForm
    kid: str | None = None
    """The `kid` of a secret or PEM key; keys of a JWKS have their own."""

    @classmethod
    def parse(cls, text: str) -> KeyFile:
        """Parse `secret:PATH`, `pem:PATH` or `jwks:PATH`."""
        form, colon, path = text.partition(":")
        if not colon or not path or form not in list(KeyForm):
            raise InvalidArgument(
                f"{text!r} is not a valid key file; use secret:PATH, pem:PATH or jwks:PATH",
                field="keys",
            )
        return cls(Path(path), KeyForm(form))


class Key(Generic[Material]):
    """A key and the only algorithm that it is used with."""

    __slots__ = ("algorithm", "kid", "material")

    def __init__(self, algorithm: Algorithm, material: Material, kid: str | None = None) -> None:
        self.algorithm = algorithm
        self.material = material
        self.kid = kid

    def __repr__(self) -> str:
        """Omit the key itself, which must not be logged."""
        return f"Key({self.algorithm.value}, kid={self.kid!r})"


CheckingKey = Key[bytes | PublicKey]
SigningKey = Key[bytes | PrivateKey]


class KeyRing:
    """All keys that tokens are verified with. Not thread-safe."""

    def __init__(self, files: Sequence[KeyFile]) -> None:
        """Read all files; raise InvalidArgument if one is invalid."""
        if not files:
            raise InvalidArgument(
                "No key file is configured, so tokens cannot be verified; pass one with --keys",
                field="keys",
            )
        self._files = files
        self._stamps = [_stamp(file.path) for file in files]
        self._read = [read_keys(file) for file in files]
        self._keys = _joined(self._read)
        self._checked_at = time.monotonic()

    def for_token(self, kid: str | None) -> Sequence[CheckingKey]:
        """Return the keys that may have signed a token with this `kid`, or with none."""
        named = [key for key in self._keys if key.kid == kid] if kid is not None else []
        if named:
            return named
        return self._keys if kid is None else [key for key in self._keys if key.kid is None]

    def refresh(self) -> bool:
        """Reload changed files; return whether the keys were replaced.

        The keys of a deleted file are dropped. An invalid file (it may be half written) keeps its
        previous keys.
        """
        now = time.monotonic()
        if now - self._checked_at < limits.TOKEN_KEYS_SECONDS:
            return False
        self._checked_at = now
        stamps = [_stamp(file.path) for file in self._files]
        if stamps == self._stamps:
            return False
        for n, (old, new) in enumerate(zip(self._stamps, stamps, strict=True)):
            if new is None and old is not None:
                self._read[n] = []
                path = self._files[n].path
                _log.error("The key file %s was deleted; its keys are no longer accepted", path)
            elif old != new:
                self._reload(n)
        self._stamps = stamps
        try:
            self._keys = _joined(self._read)
        except InvalidArgument as error:
            _log.error(
                "The changed key files are not valid together, so all previous keys stay in use: "
                "%s",
                error,
            )
            return False
        _log.info("Reloaded the keys that tokens are verified with: %s", self._keys)
        return True

    def _reload(self, n: int) -> None:
        try:
            self._read[n] = read_keys(self._files[n])
        except InvalidArgument as error:
            _log.error("The previous keys of a file stay in use: %s", error)


# ---- Files ---------------------------------------------------------------------------------------


def read_keys(file: KeyFile) -> list[CheckingKey]:
    """Read the keys of a file for verifying tokens.

    Raises:
        InvalidArgument: The file is unreadable or not of its declared form, or a key is weak.
    """
    content = _content(file.path)
    if file.form is KeyForm.SECRET:
        return [Key(Algorithm.HS256, _secret(content, file.path), file.kid)]
    if file.form is KeyForm.PEM:
        return [_public(_pem(content, file.path), file.kid, file.path)]
    return _jwks(content, file.path)


def read_signing_key(file: KeyFile) -> SigningKey:
    """Read the secret or private key of a file for signing tokens."""
    content = _content(file.path)
    if file.form is KeyForm.SECRET:
        return Key(Algorithm.HS256, _secret(content, file.path), file.kid)
    key = _pem(content, file.path) if file.form is KeyForm.PEM else None
    if not isinstance(key, PrivateKey):
        raise _unfit(
            file.path,
            "does not contain a private key; sign tokens with a secret or a private PEM key",
        )
    return Key(_public(key, None, file.path).algorithm, key, file.kid)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(limits.TOKEN_KEY_BYTES_MAX + 1)
    except OSError as error:
        raise _unfit(
            path, f"cannot be read: {error.strerror}; correct its path or permissions"
        ) from error
    if len(content) > limits.TOKEN_KEY_BYTES_MAX:
        raise _unfit(
            path, f"is larger than TOKEN_KEY_BYTES_MAX = {limits.TOKEN_KEY_BYTES_MAX} bytes"
        )
    return content


def _secret(content: bytes, path: Path) -> bytes:
    secret = content.removesuffix(b"\n").removesuffix(b"\r")
    if b"-----BEGIN" in secret or secret.startswith((b"ssh-", b"ecdsa-", b"{")):
        raise _unfit(path, "contains a key, not a secret; use pem:PATH or jwks:PATH")
    return _strong(secret, path)


def _strong(secret: bytes, path: Path) -> bytes:
    if len(secret) < limits.SECRET_BYTES_MIN:
        raise _unfit(
            path,
            f"has a secret of {len(secret)} bytes; HS256 needs at least {limits.SECRET_BYTES_MIN} "
            "(create one with openssl rand -hex 32)",
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
        raise _unfit(
            path, "does not contain an unencrypted PEM key; use one, or secret:PATH for a secret"
        ) from error
    return key


def _public(key: object, kid: str | None, path: Path) -> CheckingKey:
    """Wrap a public key with its algorithm; raise InvalidArgument if unsupported or weak."""
    if isinstance(key, PrivateKey):
        key = key.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < limits.RSA_BITS_MIN:
            raise _unfit(
                path,
                f"has an RSA key of {key.key_size} bits; "
                f"RS256 needs at least {limits.RSA_BITS_MIN}",
            )
        return Key(Algorithm.RS256, key, kid)
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
        return Key(Algorithm.ES256, key, kid)
    raise _unfit(path, "contains an unsupported key; use RSA (RS256) or P-256 (ES256)")


# ---- Key sets ------------------------------------------------------------------------------------


class _Jwk(msgspec.Struct):
    """The members of a JWK that determine whether the hub can use it."""

    kty: str
    kid: str | None = None
    alg: str | None = None
    use: str = "sig"
    crv: str | None = None

    @property
    def algorithm(self) -> Algorithm | None:
        """The algorithm, or None if the key is for another algorithm or for encryption."""
        found = _ALGORITHMS.get((self.kty, self.crv))
        is_ours = self.use == "sig" and (self.alg is None or self.alg == found)
        return found if is_ours else None


_ALGORITHMS: Final = {
    ("oct", None): Algorithm.HS256,
    ("RSA", None): Algorithm.RS256,
    ("EC", "P-256"): Algorithm.ES256,
}


def _jwks(content: bytes, path: Path) -> list[CheckingKey]:
    """Return the keys of a JWKS that are for a supported algorithm; others are skipped."""
    try:
        listed = msgspec.json.decode(content, type=dict[str, Any])["keys"]
        found = [(data, msgspec.convert(data, _Jwk)) for data in listed]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise _unfit(path, 'is not a JWKS of the form {"keys": [{"kty": …}, …]}') from error
    keys = []
    for data, jwk in found:
        if jwk.algorithm is None:
            _log.info(
                "%s: skipped the key %r, which is not for HS256, RS256 or ES256 signatures",
                path,
                jwk.kid,
            )
            continue
        keys.append(_from_jwk(data, jwk, jwk.algorithm, path))
    if not keys:
        raise _unfit(
            path,
            "does not contain a key for HS256, RS256 or ES256; add an RSA key, a P-256 key "
            f"or a symmetric key of at least {limits.SECRET_BYTES_MIN} bytes",
        )
    return keys


def _from_jwk(data: dict[str, Any], jwk: _Jwk, algorithm: Algorithm, path: Path) -> CheckingKey:
    try:
        material: object = jwt.PyJWK(data, algorithm.value).key
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError):
        # Not chained: the error contains the key.
        raise _unfit(
            path, f"has an incomplete key {jwk.kid!r}; export it again with all members"
        ) from None
    if isinstance(material, bytes):
        return Key(algorithm, _strong(material, path), jwk.kid)
    return _public(material, jwk.kid, path)


def _joined(read: Iterable[Sequence[CheckingKey]]) -> list[CheckingKey]:
    keys = list(chain.from_iterable(read))
    if len(keys) > limits.TOKEN_KEYS_MAX:
        raise InvalidArgument(
            f"The key files have {len(keys)} keys, but at most TOKEN_KEYS_MAX = "
            f"{limits.TOKEN_KEYS_MAX} are allowed; remove those that no longer sign tokens",
            field="keys",
        )
    names = [key.kid for key in keys if key.kid is not None]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgument(
            f"The key files have several keys with the same kid: {', '.join(twice)}; make each "
            "kid unique",
            field="keys",
        )
    return keys


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Return a value that changes with the file, or None if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _unfit(path: Path, problem: str) -> InvalidArgument:
    return InvalidArgument(f"The key file {str(path)!r} {problem}", field="keys")
