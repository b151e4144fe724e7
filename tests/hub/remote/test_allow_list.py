"""The allow-list of remote handlers: listed and similar addresses, and name resolution."""

import asyncio
import socket
from ipaddress import ip_address
from typing import Any

import pytest

from naksha.hub.remote.allow_list import AllowList
from naksha.hub.remote.client import CallTimeouts, ConnectFailed, RemoteClient, ResponseTimeout
from naksha.model.errors import Forbidden, InvalidArgument

ALLOWED = [
    "https://handlers.example.com/naksha",
    "http://open.example.com",
    "http://127.0.0.1:9000/",
    "http://[::1]:9000",
    "http://localhost:9001/a/",
    "https://inside.example.com",
    "10.20.0.0/16",
    "fd00::/8",
]
TARGETS = AllowList(ALLOWED)


@pytest.mark.parametrize(
    "url",
    [
        "https://handlers.example.com/naksha",
        "https://handlers.example.com/naksha/",
        "https://handlers.example.com/naksha/stamp",
        "https://handlers.example.com:443/naksha/stamp",
        "HTTPS://Handlers.Example.COM/naksha",
        "https://handlers.example.com./naksha",
        "http://open.example.com",
        "http://open.example.com/",
        "http://open.example.com/any/thing",
        "http://127.0.0.1:9000/x",
        "http://[::1]:9000/x",
        "http://localhost:9001/a/b",
    ],
)
def test_listed_addresses_are_allowed(url: str) -> None:
    target = TARGETS.check(url)
    assert TARGETS.check(target.url) == target


@pytest.mark.parametrize(
    "url",
    [
        "http://handlers.example.com/naksha",
        "https://handlers.example.com:444/naksha",
        "https://handlers.example.com/nakshas",
        "https://handlers.example.com/",
        "https://handlers.example.com.evil.org/naksha",
        "https://evil.org/handlers.example.com/naksha",
        "http://127.0.0.1:9001/",
        "http://127.0.0.1/",
        "http://127.1:9000/",
        "http://2130706433:9000/",
        "http://localhost:9000/",
        "http://localhost:9001/ab",
        "http://169.254.169.254/latest/meta-data",
        "http://10.20.0.1/",
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(Forbidden, match="not on the allow-list") as refused:
        TARGETS.check(url)
    assert refused.value.field == "properties.url"


@pytest.mark.parametrize(
    "url",
    [
        None,
        7,
        "",
        "handlers.example.com",
        "//handlers.example.com/naksha",
        "file:///etc/passwd",
        "gopher://open.example.com/",
        "http://",
        "http:///naksha",
        "http://open.example.com:99999/",
        "http://user@open.example.com/",
        "http://open.example.com@evil.org/",
        "http://open.example.com#@evil.org/",
        "http://open.example.com/?a=b",
        "https://handlers.example.com/naksha/../admin",
        "https://handlers.example.com/naksha/%2e%2e/admin",
        "https://handlers.example.com/naksha//admin",
        "https://handlers.example.com\\@evil.org/naksha",
        "http://open.example.com/\r\nX: y",
        "http://öpen.example.com/",
    ],
)
def test_invalid_urls_are_rejected(url: object) -> None:
    with pytest.raises(InvalidArgument, match="is not a valid URL"):
        TARGETS.check(url)


@pytest.mark.parametrize("text", ["everything", "*", "10.20.0.1/16", "ftp://a/", "http://a/?b"])
def test_invalid_settings_are_rejected(text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        AllowList([text])
    assert refused.value.field == "remote_handlers"


def test_nothing_is_allowed_by_default() -> None:
    with pytest.raises(Forbidden):
        AllowList().check("https://handlers.example.com/")


# ---- What a name means ---------------------------------------------------------------------------


class Names:
    """Addresses that names have, one answer after the other."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int, **_: Any) -> list[Any]:
        self.asked.append(host)
        found = self.answers.pop(0)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]


async def call(url: str, names: Names, monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "getaddrinfo", names)
    remotes = RemoteClient([url.format(port=port), "10.20.0.0/16"])
    try:
        target = remotes.targets.check(url.format(port=port))
        await remotes.post(target, b"{}", {}, CallTimeouts(0.5, 1.0))
    finally:
        await remotes.close()
        monkeypatch.undo()


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "10.0.0.1",
        "192.168.1.1",
        "172.16.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "fe80::1",
        "fd00::1",
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "ff02::1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
    ],
)
async def test_a_name_does_not_lead_inside(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Forbidden, match="private network"):
        await call("http://handlers.example.com:{port}/", Names([address]), monkeypatch, 9)
    with pytest.raises(Forbidden, match="private network"):
        names = Names(["93.184.216.34", address])
        await call("http://handlers.example.com:{port}/", names, monkeypatch, 9)


async def test_a_name_is_looked_up_once_and_that_address_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second look-up would return another address, which must not be called."""
    called = []

    async def inside(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.append(await reader.read(10))
        writer.close()

    server = await asyncio.start_server(inside, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    names = Names(["10.20.255.254"], ["127.0.0.1"])
    with pytest.raises((ConnectFailed, ResponseTimeout)):
        await call("http://handlers.example.com:{port}/", names, monkeypatch, port)
    assert names.asked == ["handlers.example.com"]
    assert called == []
    server.close()


def test_localhost_means_this_machine_and_nothing_else() -> None:
    TARGETS.check_address("localhost", ip_address("127.0.0.1"))
    TARGETS.check_address("inside.example.com", ip_address("10.20.1.2"))
    TARGETS.check_address("inside.example.com", ip_address("fd12::1"))
    TARGETS.check_address("127.0.0.1", ip_address("127.0.0.1"))
    with pytest.raises(Forbidden):
        TARGETS.check_address("localhost", ip_address("192.168.0.1"))
    with pytest.raises(Forbidden):
        TARGETS.check_address("inside.example.com", ip_address("10.21.0.1"))


async def test_an_unresponsive_host_does_not_occupy_all_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("naksha.model.limits.REMOTE_CONNECTIONS_MAX", 3)
    monkeypatch.setattr("naksha.model.limits.REMOTE_CONNECTIONS_PER_TARGET_MAX", 2)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def quick(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    async with (
        await asyncio.start_server(silent, "127.0.0.1", 0) as dead,
        await asyncio.start_server(quick, "127.0.0.1", 0) as living,
    ):
        urls = [f"http://127.0.0.1:{one.sockets[0].getsockname()[1]}" for one in (dead, living)]
        remotes = RemoteClient(urls)
        waits, answers = (remotes.targets.check(url) for url in urls)
        timeouts = CallTimeouts(5, 60)
        waiting = [asyncio.create_task(remotes.post(waits, b"{}", {}, timeouts)) for _ in range(5)]
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            assert await remotes.post(answers, b"{}", {}, timeouts) == b"{}"
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await remotes.close()
