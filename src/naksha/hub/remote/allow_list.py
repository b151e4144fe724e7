"""Allow-list of remote handlers, against server-side request forgery by configured connectors.

    https://handlers.example.com/naksha     this host and port, this path and paths below it
    http://127.0.0.1:9000                   a loopback or private address must be listed itself,
    10.20.0.0/16                            or a network, for names that resolve to its addresses

A name must resolve to public addresses or to those of a listed network, and the client connects
to exactly the address that was checked.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from naksha.model import limits
from naksha.model.errors import Forbidden, InvalidArgument

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_PORTS: Final = {"http": 80, "https": 443}
_LOCALHOST: Final = "localhost"


class AllowedAddress(NamedTuple):
    """A URL that is called, or below which URLs may be called."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def url(self) -> str:
        """The URL, without the default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"

    def covers(self, other: AllowedAddress) -> bool:
        """Return whether another target is this one or below it."""
        own = self.path.rstrip("/")
        return self.origin == other.origin and (
            other.path == self.path or other.path.startswith(f"{own}/")
        )


class AllowList:
    """The configured allow-list: URLs and networks."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        """Parse the entries; raise InvalidArgument for one that is neither a URL nor a network."""
        self._targets: list[AllowedAddress] = []
        self._networks: list[Network] = []
        for text in allowed:
            if "://" in text:
                self._targets.append(_parse_target(text, field="remote_handlers"))
            else:
                self._networks.append(_network(text))
        if len(self._targets) + len(self._networks) > limits.REMOTE_TARGETS_MAX:
            raise InvalidArgument(
                f"--remote-handlers has {len(self._targets) + len(self._networks)} entries; the "
                f"maximum is {limits.REMOTE_TARGETS_MAX}",
                field="remote_handlers",
            )

    def check(self, url: object) -> AllowedAddress:
        """Return the target of a URL if it is allowed.

        Raises:
            InvalidArgument: The URL is not a valid target.
            Forbidden: The URL is not listed.
        """
        target = _parse_target(url, field="properties.url")
        if not any(each.covers(target) for each in self._targets):
            raise Forbidden(
                f"The remote handler {target.url!r} is not on the allow-list; the operator of the "
                "hub can add it with --remote-handlers",
                field="properties.url",
            )
        return target

    def check_address(self, host: str, address: Address) -> None:
        """Raise Forbidden if the host of a listed target may not resolve to this address."""
        plain = _unmapped(address)
        if _literal(host) is not None or (host == _LOCALHOST and plain.is_loopback):
            return  # the address itself is listed
        if _is_public(plain) or any(plain in each for each in self._networks):
            return
        raise Forbidden(
            f"{host!r} resolves to an address of a private network or of this machine; the "
            "operator of the hub can allow that network with --remote-handlers",
            field="properties.url",
        )


def _parse_target(url: object, *, field: str) -> AllowedAddress:
    """Parse a target URL: without user, query and fragment, and with a normalized path."""
    if not isinstance(url, str) or not url.isascii() or not url.isprintable():
        raise _no_target(url, field)
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        raise _no_target(url, field) from None
    plain = parts.path or "/"
    strange = {"?", "#", "@", "\\", "%", " "} & set(url)
    dotted = {".", ".."} & set(plain.split("/"))
    if scheme not in _PORTS or not host or strange or dotted or "//" in plain:
        raise _no_target(url, field)
    return AllowedAddress(scheme, host.rstrip("."), port or _PORTS[scheme], plain)


def _no_target(url: object, field: str) -> InvalidArgument:
    return InvalidArgument(
        f"{url!r:.200} is not a valid URL of a remote handler; use one like "
        "https://handlers.example.com/stamp, without user, query and escapes",
        field=field,
    )


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise InvalidArgument(
            f"{text!r:.200} is neither a URL nor a valid network such as 10.20.0.0/16",
            field="remote_handlers",
        ) from None


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _unmapped(address: Address) -> Address:
    """Convert an IPv4-mapped IPv6 address to IPv4."""
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped


_TRANSLATED: Final = ipaddress.ip_network("64:ff9b::/96")
"""IPv6 addresses that a NAT64 gateway translates to any IPv4 address."""


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and (
        address.sixtofour is not None or address.teredo is not None or address in _TRANSLATED
    ):
        return False
    return address.is_global and not address.is_multicast
