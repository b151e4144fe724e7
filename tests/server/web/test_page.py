"""The files of the map page over HTTP: headers, policy, caching, and a page that is not built."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from naksha.model.errors import InvalidArgument
from naksha.server.process.main import greeting
from naksha.server.process.settings import ServerSettings, check
from naksha.server.web.files import page_files
from naksha.server.web.page import content_security_policy, page_response
from naksha.testing.servers.hub_server import HubServer


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with (
        HubServer(tmp_path_factory.mktemp("hub")) as hub,
        httpx.Client(base_url=hub.url, timeout=60) as client,
    ):
        yield client


def test_the_page_has_no_inline_script_and_names_no_other_host(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "://" not in page.text
    assert re.findall(r"<script(?![^>]* src=)", page.text) == []
    again = client.get("/", headers={"If-None-Match": page.headers["etag"]})
    assert again.status_code == 304


def test_files_are_named_by_their_content_and_kept_for_ever(client: httpx.Client) -> None:
    names = re.findall(r'"\./(web/[^"]+)"', client.get("/").text)
    assert len(names) >= 4
    for name in names:
        assert re.fullmatch(r"web/[\w-]+-[\w-]{8}\.(js|css|svg)", name)
        found = client.get(f"/{name}")
        assert found.status_code == 200
        assert found.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert found.headers["content-encoding"] == "gzip"
        plain = client.get(f"/{name}", headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.content == found.content


@pytest.mark.parametrize("path", ["/web/nothing.js", "/web/..%2Findex.html", "/web/%2e%2e", "/web"])
def test_only_files_of_the_page_are_served(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404


def test_licences_of_the_bundled_packages_are_served(client: httpx.Client) -> None:
    text = client.get("/web/licenses.md").text
    assert all(name in text for name in ("maplibre-gl", "preact", "world-atlas", "noto-sans"))


def test_a_page_that_is_not_built_says_what_to_run(tmp_path: Path) -> None:
    response = page_response(ServerSettings(), None, tmp_path)
    assert response.status_code == 503
    assert b"scripts/setup.sh web" in bytes(response.body)


def test_a_page_that_is_built_again_is_served_without_a_restart(tmp_path: Path) -> None:
    assert page_files(tmp_path) == {}
    (tmp_path / "web").mkdir()
    for number, name in enumerate(("a-12345678.js", "b-12345678.js"), 1):
        (tmp_path / "web" / name).write_text("1")
        (tmp_path / "index.html").write_text(name)
        os.utime(tmp_path / "index.html", (number, number))
        assert name in page_files(tmp_path)


def test_a_style_of_the_settings_allows_its_hosts(tmp_path: Path) -> None:
    style = "https://styles.example/dark.json?a=1"
    settings = ServerSettings(map_style=style, map_hosts=("https://tiles.example:8443/x",))
    policy = content_security_policy(check(settings))
    assert "connect-src 'self' https://styles.example https://tiles.example:8443;" in policy
    assert "script-src 'self';" in policy
    page = '<meta name="naksha-map-style" content="" />'
    (tmp_path / "index.html").write_text(page)
    response = page_response(settings, None, tmp_path)
    assert bytes(response.body).decode() == page.replace('content=""', f'content="{style}"')


@pytest.mark.parametrize(
    "address", ["tiles.example", "https://a b", "https://x; script-src *", "x"]
)
def test_an_address_that_is_not_one_is_refused(address: str) -> None:
    for settings in (ServerSettings(map_style=address), ServerSettings(map_hosts=(address,))):
        with pytest.raises(InvalidArgument, match="is not an address such as"):
            check(settings)


def test_the_greeting_ends_with_the_address_of_the_map() -> None:
    assert greeting(ServerSettings(), 8080).rstrip().endswith("http://127.0.0.1:8080/")
