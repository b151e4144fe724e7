"""Objects of the catalog: typed, immutable values with a 64-bit id.

    @object_type("space")
    class SpaceObject(msgspec.Struct, frozen=True):
        title: str

A type has a name, which is stored in the database, and a frozen struct. Values of types that this
program does not know are read as `UnknownValue` and written back byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from naksha.model import limits
from naksha.model.errors import InvalidArgument, StorageCorrupt

V = TypeVar("V")
S = TypeVar("S", bound=type[msgspec.Struct])

_HAS_PARTS: Final = 0x80
_VERSION: Final = 0x60
_LENGTH: Final = 0x1F
_PARTS_MAX: Final = 1 << 32


class ObjectRef(NamedTuple):
    """Reference to an object. Only the id is its key; type and parts are expectations.

    In bytes: a header (the length of the type less one, two bits of version, whether parts follow),
    the type, the id as 8 bytes, the parts less one as 4 bytes if there are more than one. No bytes
    stand for no reference.
    """

    type: str
    id: int
    parts: int = 1

    def to_bytes(self) -> bytes:
        check_type_id(self.type)
        if not 0 <= self.id <= limits.INT8_MAX:
            raise InvalidArgument(
                f"{self.id} is not a valid object id; it must be an integer from 0 to 2^63 - 1",
                field="id",
            )
        if not 1 <= self.parts <= _PARTS_MAX:
            raise InvalidArgument(
                f"An object reference must have 1 to 2^32 parts, not {self.parts}", field="parts"
            )
        name = self.type.encode("ascii")
        header = len(name) - 1
        if self.parts == 1:
            return bytes([header]) + name + self.id.to_bytes(8, "big")
        parts = (self.parts - 1).to_bytes(4, "big")
        return bytes([header | _HAS_PARTS]) + name + self.id.to_bytes(8, "big") + parts

    @classmethod
    def from_bytes(cls, data: bytes) -> ObjectRef | None:
        """Parse a reference; None for no bytes."""
        if not data:
            return None
        header = data[0]
        end = 2 + (header & _LENGTH)
        if header & _VERSION or len(data) != end + 8 + (4 if header & _HAS_PARTS else 0):
            raise StorageCorrupt(
                f"A stored object reference is damaged: {data.hex()}; run `naksha doctor`"
            )
        name = data[1:end].decode("ascii", "replace")
        id = int.from_bytes(data[end : end + 8], "big")
        parts = 1 + int.from_bytes(data[end + 8 :], "big")
        return cls(name, id, parts)


class ObjectType(NamedTuple):
    """A registered type."""

    id: str
    struct: type[Any]
    is_cached: bool
    """Whether its objects never change once written, so that they can be cached without expiry."""


class UnknownValue(msgspec.Struct, frozen=True):
    """The value of an object whose type this program does not know."""

    type: str
    raw: bytes

    @property
    def attributes(self) -> dict[str, Any]:
        """Its content as plain values."""
        found: dict[str, Any] = msgspec.msgpack.decode(self.raw)
        return found


class Object(msgspec.Struct, Generic[V], frozen=True):
    """A value with the id and the properties of its storage."""

    id: int
    value: V
    token: str | None = None
    """Token of a conditionally written object, different after every write; otherwise None."""
    parts: int = 1
    created_us: int = 0

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef(type_id(self.value), self.id, self.parts)


_BY_ID: Final[dict[str, ObjectType]] = {}
_BY_STRUCT: Final[dict[type[Any], ObjectType]] = {}


def object_type(id: str, *, is_cached: bool = True) -> Callable[[S], S]:
    """Register a frozen struct as the type `id` of the catalog."""
    check_type_id(id)

    def register(struct: S) -> S:
        if not struct.__struct_config__.frozen:
            raise InvalidArgument(
                f"The struct {struct.__name__} cannot be an object type, because it is mutable; "
                "declare it with frozen=True",
                field="type",
            )
        known = _BY_ID.get(id)
        if known is not None and known.struct is not struct:
            raise InvalidArgument(
                f"The object type {id!r} is already registered for the struct "
                f"{known.struct.__name__}; choose another id for {struct.__name__}",
                field="type",
            )
        _BY_ID[id] = _BY_STRUCT[struct] = ObjectType(id, struct, is_cached)
        return struct

    return register


def check_type_id(id: str) -> None:
    """Raise InvalidArgument unless a text is a valid type id."""
    if id in _BY_ID:
        return
    if not (
        id.isascii()
        and limits.OBJECT_TYPE_BYTES_MIN <= len(id) <= limits.OBJECT_TYPE_BYTES_MAX
        and id.isprintable()
    ):
        raise InvalidArgument(
            f"An object type id must have {limits.OBJECT_TYPE_BYTES_MIN} to"
            f" {limits.OBJECT_TYPE_BYTES_MAX} printable ASCII characters, not {id[:200]!r}",
            field="type",
        )


def known_type(id: str) -> ObjectType | None:
    """Return the registered type with this id, if any."""
    return _BY_ID.get(id)


def type_id(value: object) -> str:
    """Return the type id of a value."""
    if isinstance(value, UnknownValue):
        return value.type
    return type_id_of(type(value))


def type_id_of(struct: type[Any]) -> str:
    """Return the type id of a registered struct."""
    found = _BY_STRUCT.get(struct)
    if found is None:
        raise InvalidArgument(
            f"The struct {struct.__name__} is not a registered object type; register it with the "
            "decorator object_type",
            field="type",
        )
    return found.id


def encode(value: object) -> bytes:
    """Return the value in its stored form."""
    if isinstance(value, UnknownValue):
        return value.raw
    return msgspec.msgpack.encode(value)


def decode(type_id: str, data: bytes) -> Any:
    """Decode a value of a type; attributes unknown to the type are dropped."""
    known = _BY_ID.get(type_id)
    if known is None:
        return UnknownValue(type_id, data)
    try:
        return msgspec.msgpack.decode(data, type=known.struct)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StorageCorrupt(
            f"An object of type {type_id!r} cannot be decoded: {error}; restore the catalog from a "
            "backup"
        ) from error
