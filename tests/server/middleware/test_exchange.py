"""Properties of every request and response: envelopes, ids, sizes, compression, origins."""

import gzip
import json
import re
import zlib
from collections.abc import Iterator

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from naksha.model import limits
from naksha.model.errors import LimitExceeded, Unavailable
from naksha.server.middleware.compression import Compression
from naksha.server.middleware.request_body import bounded
from naksha.server.middleware.request_record import RequestRecord
from naksha.testing.servers._watchdog import wait_until
from naksha.testing.servers.hub_server import HubServer
from tests.server.raw_connection import connected, get_line, rest

BODY_MAX = 100_000


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    arguments = ["--body-bytes", str(BODY_MAX), "--log-format", "json"]
    with HubServer(tmp_path_factory.mktemp("hub"), arguments=arguments) as server:
        yield server


def error(answer: httpx.Response, status: int, name: str) -> dict[str, str]:
    """The envelope of an error, which is complete."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body: dict[str, str] = answer.json()
    assert body["type"] in ("ErrorResponse", "error")
    assert body["error"] == name
    assert body["streamId"] == answer.headers["Stream-Id"]
    assert body["errorMessage"]
    assert body["code"]
    return body


def test_an_unknown_path(client: httpx.Client) -> None:
    body = error(client.get("/nothing"), 404, "NotFound")
    assert body["type"] == "error"
    assert body["errorMessage"] == body["message"] == "The requested resource does not exist."


def test_an_unknown_method(client: httpx.Client) -> None:
    answer = client.request("PUT", "/health-status")
    said = error(answer, 405, "Forbidden")["errorMessage"]
    assert "Method PUT is not allowed for this resource; allowed: GET" in said
    assert "GET" in answer.headers["Allow"]


def test_invalid_json_is_located(client: httpx.Client) -> None:
    body = error(client.post("/spaces", content=b'{"id": "a",\n  x}'), 400, "IllegalArgument")
    assert body["field"] == "body"
    assert "line 2, column 3" in body["errorMessage"]
    for nothing in (b"", b" \n"):
        empty = error(client.post("/spaces", content=nothing), 400, "IllegalArgument")
        assert empty["errorMessage"] == "The body is empty; send JSON"
    error(client.post("/spaces", content=b'"\xff"'), 400, "IllegalArgument")
    error(client.post("/spaces", content=b"[" * 50_000), 400, "IllegalArgument")


@pytest.mark.parametrize("name", ["application/x-www-form-urlencoded", "text/plain", None])
@pytest.mark.parametrize("packed", [False, True])
def test_a_body_is_json_whatever_it_is_called(
    client: httpx.Client, name: str | None, packed: bool
) -> None:
    client.post("/spaces", json={"id": "called"})
    headers = {} if name is None else {"Content-Type": name}
    body = b'{"id": "now"}'
    if packed:
        body, headers["Content-Encoding"] = gzip.compress(body), "gzip"
    answer = client.post("/spaces/called/tags", content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    assert client.delete("/spaces/called/tags/now").status_code == 200


def test_a_parameter_that_is_wrong_is_named(client: httpx.Client) -> None:
    client.post("/spaces", json={"id": "wrong"})
    body = error(client.get("/spaces/wrong/search?limit=many"), 400, "IllegalArgument")
    assert body["field"] == "limit"
    body = error(client.get("/spaces/wrong/bbox?west=1&south=1&east=2"), 400, "IllegalArgument")
    assert (body["field"], body["errorMessage"]) == ("north", "north: required but missing")
    geometry = {"type": "Feature", "geometry": None}
    body = error(client.post("/spaces/wrong/spatial", json=geometry), 400, "IllegalArgument")
    assert body["field"] == "geometry.type"
    assert "must be Point, MultiPoint, " in body["errorMessage"]


@pytest.mark.parametrize("stream_id", ["mine", "a-B_c.1:2", "x" * limits.STREAM_ID_LENGTH_MAX])
def test_the_stream_id_of_the_client_comes_back(client: httpx.Client, stream_id: str) -> None:
    answer = client.get("/nothing", headers={"Stream-Id": stream_id})
    assert error(answer, 404, "NotFound")["streamId"] == stream_id


@pytest.mark.parametrize(
    "stream_id", ["", "a b", "<x>", 'a"b', "x" * (limits.STREAM_ID_LENGTH_MAX + 1)]
)
def test_a_stream_id_that_is_not_fit_is_replaced(client: httpx.Client, stream_id: str) -> None:
    answers = [client.get("/nothing", headers={"Stream-Id": stream_id}) for _ in range(2)]
    ids = [error(answer, 404, "NotFound")["streamId"] for answer in answers]
    assert stream_id not in ids
    assert len(set(ids)) == 2


@pytest.mark.parametrize("path", ["/health-status", "/spaces", "/spaces/head/iterate", "/nothing"])
def test_head_requests(client: httpx.Client, path: str) -> None:
    client.post("/spaces", json={"id": "head"})
    whole = client.get(path)
    for _ in range(2):  # the connection is good for more
        head = client.head(path)
        assert (head.status_code, head.content) == (whole.status_code, b"")
        for name in ("Content-Type", "Content-Length", "ETag"):
            if name != "Content-Length" or path != "/nothing":  # it has the stream id in it
                assert head.headers.get(name) == whole.headers.get(name)


def test_responses_have_timing(client: httpx.Client) -> None:
    for path in ("/spaces", "/nothing"):
        told = client.get(path).headers["Stream-Info"]
        figures = dict(part.split("=") for part in told.split(";"))
        assert figures.keys() == {"STime", "QTime"}
        assert 0 <= int(figures["QTime"]) <= int(figures["STime"]) < 60_000


def test_pages_of_any_origin_may_ask(client: httpx.Client) -> None:
    # Without a token this is so only for pages of this machine.
    origin = {"Origin": "http://localhost:3000"}
    answer = client.get("/nothing", headers=origin)
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    exposed = answer.headers["Access-Control-Expose-Headers"].split(", ")
    assert {"ETag", "Retry-After", "Stream-Id", "Stream-Info"} <= {*exposed}
    asked = {
        "Origin": "https://maps.example.com",
        "Access-Control-Request-Method": "PATCH",
        "Access-Control-Request-Headers": "Authorization, Content-Type",
    }
    answer = client.options("/spaces/x", headers=asked)
    assert answer.status_code == 204
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert "PATCH" in answer.headers["Access-Control-Allow-Methods"]
    assert "authorization" in answer.headers["Access-Control-Allow-Headers"].lower()


def test_a_last_slash_means_nothing(client: httpx.Client) -> None:
    client.post("/spaces/", json={"id": "slash"})
    assert client.get("/spaces/slash/").json()["id"] == "slash"
    assert client.get("/spaces/?clientId=x").status_code == 200
    assert client.get("/spaces/slash%2F").status_code in (400, 404)


# ---- Bodies --------------------------------------------------------------------------------------


def space(id: str, description: str = "") -> bytes:
    return json.dumps({"id": id, "description": description}).encode()


def test_a_packed_body_is_unpacked(client: httpx.Client) -> None:
    headers = {"Content-Encoding": "gzip"}
    packed = gzip.compress(space("packed"))
    assert client.post("/spaces", content=packed, headers=headers).json()["id"] == "packed"
    twice = gzip.compress(b'{"id": "pack') + gzip.compress(b'ed-twice"}')
    assert client.post("/spaces", content=twice, headers=headers).json()["id"] == "packed-twice"


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (b"no gzip", "gzip"),
        (gzip.compress(b'{"id":"cut"}', mtime=0)[:-9], "gzip"),
        (zlib.compress(b"{}"), "deflate"),
        (b"{}", "br"),
    ],
    ids=["no-gzip", "cut-off", "deflate", "brotli"],
)
def test_a_body_that_is_packed_badly(client: httpx.Client, content: bytes, encoding: str) -> None:
    answer = client.post("/spaces", content=content, headers={"Content-Encoding": encoding})
    error(answer, 400, "IllegalArgument")


def test_a_body_that_is_too_large_is_refused(client: httpx.Client) -> None:
    assert client.post("/spaces", content=space("fits", "x" * 90_000)).status_code == 200
    large = space("large", "x" * BODY_MAX)
    body = error(client.post("/spaces", content=large), 413, "PayloadTooLarge")
    assert "100,000 bytes" in body["errorMessage"]
    # In pieces, without a word about how many will come.
    pieces = iter([large[:50_000], large[50_000:]])
    error(client.post("/spaces", content=pieces), 413, "PayloadTooLarge")
    # Small on the way.
    bomb = gzip.compress(b'{"id": "' + b"x" * 50_000_000)
    assert len(bomb) < BODY_MAX
    answer = client.post("/spaces", content=bomb, headers={"Content-Encoding": "gzip"})
    error(answer, 413, "PayloadTooLarge")


def test_a_head_that_is_too_large_is_refused(hub: HubServer, client: httpx.Client) -> None:
    headers = {"X-Long": "x" * limits.REQUEST_HEAD_BYTES_MAX}
    error(client.get("/spaces", headers=headers), 431, "IllegalArgument")
    with connected(hub.port) as connection:
        try:
            connection.sendall(b"GET /hub HTTP/1.1\r\nX-Long: " + b"x" * 5_000_000)
        except ConnectionError:
            return
        assert rest(connection)[:12] in (b"HTTP/1.1 431", b"")


def test_responses_are_compressed_on_request(hub: HubServer, client: httpx.Client) -> None:
    client.post("/spaces", content=space("long", "naksha " * 2_000))
    packed = client.get("/spaces/long", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert len(packed.json()["description"]) == 14_000
    plain = client.get("/spaces/long", headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers
    assert plain.json() == packed.json()
    for answer in (packed, plain):
        assert answer.headers["Vary"] == "Accept-Encoding"
    short = client.get("/health-status", headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in short.headers
    for encoding in ("gzip", "identity"):
        short = client.get("/health-status", headers={"Accept-Encoding": encoding})
        assert "Vary" not in short.headers


# ---- Health, metrics, logs -----------------------------------------------------------------------


async def test_packs_of_nothing_are_not_unpacked_for_ever() -> None:
    packs = gzip.compress(b"") * (limits.GZIP_PACKS_MAX + 2)

    async def receive() -> Message:
        return {"type": "http.request", "body": packs, "more_body": True}

    for bytes_max, message in ((len(packs), "gzip members"), (len(packs) - 1, "exceeds")):
        fields = [(b"content-encoding", b"gzip"), (b"transfer-encoding", b"chunked")]
        scope: Scope = {"type": "http", "headers": fields}
        RequestRecord.begin(scope)
        with pytest.raises(LimitExceeded, match=message):
            await bounded(scope, receive, bytes_max)()


def test_health_in_detail_looks_at_catalog_and_storages(client: httpx.Client) -> None:
    checks = client.get("/health-status?detailed").json()["checks"]
    assert checks == {"catalog": {"result": "OK"}, "storage/default": {"result": "OK"}}


def test_detailed_health_on_request(client: httpx.Client) -> None:
    assert "checks" in client.get("/health-status?detailed=true").json()
    assert "checks" not in client.get("/health-status?detailed=false").json()


def test_metrics_count_requests_by_route(hub: HubServer, client: httpx.Client) -> None:
    client.post("/spaces", json={"id": "counted"})
    for _ in range(3):
        client.get("/spaces/counted/search")
    text = httpx.get(f"{hub.url}/metrics").text
    route = 'route="/hub/spaces/{space_id}/search"'
    assert f'naksha_requests_total{{method="GET",{route},status="200"}} 3.0' in text
    assert re.search(r'naksha_events_total\{handler="StorageHandler",outcome="answered"\} \d', text)
    assert 'naksha_catalog_cache{what="hits"}' in text
    assert "naksha_requests_running" in text


def test_a_request_has_one_line_of_json_without_secrets(
    hub: HubServer, client: httpx.Client
) -> None:
    headers = {"Stream-Id": "find-me", "Authorization": "Bearer s3cret-token"}
    client.get("/spaces/x/search?access_token=s3cret-query", headers=headers)
    httpx.get(f"{hub.url}/token-api/tokens/s3cret-path")
    client.post("/spaces", content=b"s3cret-body", headers={"Stream-Id": "find-me-too"})
    # The last line is written after its answer.
    assert wait_until(lambda: '"find-me-too"' in hub.log(), 10)
    log = hub.log()
    assert "s3cret" not in log
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    (line,) = [line for line in lines if line.get("streamId") == "find-me"]
    assert {"time", "level", "route", "status", "ms", "bytesIn", "bytesOut"} <= set(line)
    assert line["status"] == 401
    (line,) = [line for line in lines if line.get("streamId") == "find-me-too"]
    assert (line["route"], line["status"], line["app"]) == ("/hub/spaces", 400, "anonymous")
    assert line["bytesIn"] == len(b"s3cret-body")
    assert line["realm"] == "default"


def test_a_token_can_be_looked_at_as_older_clients_do(hub: HubServer) -> None:
    assert httpx.get(f"{hub.url}/token-api/tokens/x").json() == {"type": "Token", "valid": False}


def test_a_head_may_come_in_pieces(hub: HubServer) -> None:
    with connected(hub.port) as connection:
        for byte in get_line(hub.port, "/hub"):
            connection.sendall(bytes([byte]))
        assert connection.recv(12) == b"HTTP/1.1 200"


async def test_an_error_before_the_first_chunk_can_change_the_status() -> None:
    """The head of a response is kept until there is something after it."""

    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise Unavailable("The storage cannot be reached")

    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {"type": "http", "headers": []}
    RequestRecord.begin(scope)
    with pytest.raises(Unavailable):
        await Compression(broken)(scope, receive, send)
    assert not sent
