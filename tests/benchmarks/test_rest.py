"""The REST API benchmark: its requests and its client; with --long, a quick run."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from benchmarks import _data, rest
from benchmarks._frame import Options
from benchmarks._http import RequestSource, get, load, once

ANSWERS = {
    "/length": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "/chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
    "/wrong": b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nwhy",
}


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(ANSWERS[head.split()[1].decode()])
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("path", ["/length", "/chunks"])
async def test_the_client_counts_all_that_it_receives(port: int, path: str) -> None:
    found = await load(RequestSource(port, lambda _: get(port, path)), 0.1, workers=3)
    assert len(found.milliseconds) > 3
    assert found.received == 5 * len(found.milliseconds)


async def test_the_client_takes_no_error_for_an_answer(port: int) -> None:
    with pytest.raises(RuntimeError, match="404"):
        await once(port, get(port, "/wrong"))


@pytest.mark.parametrize("wanted", [100, 5_000])
def test_a_box_holds_about_as_many_features_as_it_should(wanted: int) -> None:
    count = 20_000
    starts = [road["geometry"]["coordinates"][0] for road in _data.roads(count)]
    questions = rest.RequestSet(count, 0, 0)
    found = []
    for number in range(20):
        west, south, east, north = questions.box(number, wanted)
        found.append(sum(west <= x <= east and south <= y <= north for x, y, *_ in starts))
    assert 0.8 < sum(found) / len(found) / wanted < 1.25


@pytest.mark.long
@pytest.mark.postgres
def test_a_quick_run_has_all_its_figures() -> None:
    figures = rest.run(Options(quick=True)).figures
    for name in ("id", "bbox100", "bbox5000", "tile", "write100", "write1"):
        assert float(str(figures[f"{name}_ratio"])) > 0
        assert float(str(figures[f"{name}_hub_p99_ms"])) > 0
    assert float(str(figures["bare_ratio"])) > 0
    assert float(str(figures["copy_ratio"])) > 0
