"""A client of a hub for verbs: of a running hub over HTTP, else of its catalog, with the same API.

Without `--hub`, the requests run in this process, on the application of the server, with the
catalog and the files that the settings name. So a verb is written once, against the REST API.
"""

from __future__ import annotations

import ipaddress
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from naksha.model import errors
from naksha.model.errors import InvalidArgument, NakshaError, Unavailable

TOKEN: Final = "NAKSHA_TOKEN"  # noqa: S105 - the name of a variable
SECONDS_MAX: Final = 300.0
JSON: Final = "application/json"


class HubTarget(NamedTuple):
    """Which hub a verb uses: a running one, or the one that the settings describe."""

    url: str | None
    realm: str | None
    arguments: Sequence[str]
    """Flags of `naksha serve` that locate the catalog when `--hub` is not given."""
    program: str
    is_insecure: bool = False
    """Send the token over unencrypted HTTP, too."""


class HubClient(Protocol):
    """Client of the REST API."""

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> Any:
        """Send a request and return the parsed response; a failure raises the hub's error."""


@contextmanager
def connected(target: HubTarget) -> Iterator[HubClient]:
    """Return the client of a hub for the block."""
    if target.url:
        if target.arguments or target.realm:
            unknown = target.arguments[0] if target.arguments else "--realm"
            raise InvalidArgument(
                f"{unknown} cannot be combined with --hub: the token selects the realm, and the "
                "hub has its own settings",
                field="hub",
            )
        yield _HttpClient(target.url, is_insecure=target.is_insecure)
        return
    from naksha.cli.local_hub import local_client

    with local_client(target) as client:
        yield client


def path_to(*names: str) -> str:
    """Build a path below `/hub` from names that may have any characters."""
    return "/".join(("/hub", *(quote(name, safe="") for name in names)))


def parsed(status: int, body: bytes, where: str) -> Any:
    """Return the parsed body of a response, or raise the error that it describes."""
    try:
        value = msgspec.json.decode(body) if body else None
    except msgspec.DecodeError as error:
        raise Unavailable(f"{where} returned status {status} and no JSON; is it a hub?") from error
    if status < 400:
        return value
    if not isinstance(value, dict) or "code" not in value:
        raise Unavailable(f"{where} returned status {status}; is it a hub?")
    kind = _error_kinds().get(value["code"], NakshaError)
    found = kind(str(value.get("message")), field=value.get("field"))
    raise found


def _error_kinds() -> dict[str, type[NakshaError]]:
    simple = (errors.MergeConflict,)  # its constructor needs more than a message
    return {
        kind.code: kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, NakshaError) and kind not in simple
    }


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would send the token to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


class _HttpClient:
    """Client of a running hub."""

    def __init__(self, url: str, *, is_insecure: bool) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise InvalidArgument(
                f"{url!r:.200} is not the address of a hub; expected one such as "
                "http://127.0.0.1:8080",
                field="hub",
            )
        self._base = url.rstrip("/").removesuffix("/hub")
        is_local = _is_loopback(parts.hostname or "")
        proxies = [urllib.request.ProxyHandler({})] if is_local else []
        self._opener = urllib.request.build_opener(_NoRedirects, *proxies)
        token = os.environ.get(TOKEN)
        if token and parts.scheme == "http" and not (is_local or is_insecure):
            raise InvalidArgument(
                f"The token would be sent unencrypted to {url!r:.200}; use an https address, or "
                "--insecure in a network that you trust",
                field="hub",
            )
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> Any:
        """See `HubClient.request`."""
        query = f"?{urlencode(parameters)}" if parameters else ""
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            f"{self._base}{path}{query}",
            method=method,
            data=None if body is None else msgspec.json.encode(body),
            headers={**self._headers, "Accept": JSON, "Content-Type": JSON},
        )
        try:
            with self._opener.open(request, timeout=SECONDS_MAX) as response:
                return parsed(response.status, response.read(), self._base)
        except urllib.error.HTTPError as error:
            return parsed(error.code, error.read(), self._base)
        except OSError as error:  # URLError and timeouts are some
            reason = getattr(error, "reason", error)
            raise Unavailable(f"The hub at {self._base} cannot be reached: {reason}") from error
