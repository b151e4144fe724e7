"""Chromium without a network, and hubs with keys and data, on each storage."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, Route, async_playwright

from naksha import mint, read_signing_key
from naksha.hub.auth.keys import KeyFile
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.servers.hub_server import HubServer
from tests.docs.blocks import ROOT
from tests.server.web import places

SCREENSHOTS = ROOT / "build" / "screenshots"
"""Folder of the pictures that the tests take."""
READS = ("useSpaces", "manageSpaces", "readFeatures")
WRITES = ("createFeatures", "updateFeatures", "deleteFeatures")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # No name has an address, so that no request can leave the machine.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]
HARMLESS = ("GPU stall due to ReadPixels", "Automatic fallback to software WebGL")
"""Messages of the browser about software rendering."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and "browser" in item.fixturenames:
            item.add_marker(pytest.mark.browser)


class City(NamedTuple):
    """A hub with keys and the spaces of `places`, with tokens of people and of a reader."""

    hub: HubServer
    ann: str
    ben: str
    reader: str

    @property
    def url(self) -> str:
        return f"{self.hub.url}/"

    def client(self, token: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.hub.url, headers=headers, timeout=60)


@pytest.fixture(scope="module", params=["file", pytest.param("psql", marks=pytest.mark.postgres)])
def city(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[City]:
    directory = tmp_path_factory.mktemp("web")
    if request.param == "file":
        yield from _filled(directory, None)
        return
    factory: DatabaseFactory = request.getfixturevalue("database_factory")
    with factory.fresh() as dsn:
        yield from _filled(directory, dsn)


def _filled(directory: Path, storage: str | None) -> Iterator[City]:
    secret = directory / "secret"
    secret.write_text("a secret of the tests with at least 32 bytes")
    key = read_signing_key(KeyFile.parse(f"secret:{secret}"))

    def token(user: str, *rights: str) -> str:
        matrix: dict[str, Any] = {"naksha": {right: [{}] for right in (*READS, *rights)}}
        claims = {"appId": "test-app", "userId": user, "urm": matrix}
        return mint(key, claims, seconds=3600)

    with HubServer(directory, storage=storage, arguments=["--keys", f"secret:{secret}"]) as hub:
        made = City(hub, token("ann", *WRITES), token("ben", *WRITES), token("rita"))
        with made.client(made.ann) as ann, made.client(made.ben) as ben:
            places.fill(ann, ben)
        yield made


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium, "the tests of the map page need Chromium; scripts/setup.sh system installs it"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        await browser.close()


class Visit:
    """A page of a fresh browser profile, and what must not happen in it."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.base = base
        self.problems: list[str] = []

    async def guard(self) -> None:
        """Refuse requests to other hosts, and note errors."""
        await self.page.context.route("**/*", self._checked)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.problems.append(f"exception: {error}"))

    async def _checked(self, route: Route) -> None:
        url = route.request.url
        if url.startswith((self.base, "blob:", "data:")):
            await route.continue_()
        else:
            self.problems.append(f"request to another host: {url}")
            await route.abort()

    def _console(self, message: ConsoleMessage) -> None:
        # The browser itself writes a line for each status that the page expects and explains.
        is_status = "Failed to load resource" in message.text
        is_harmless = is_status or any(text in message.text for text in HARMLESS)
        if message.type in ("error", "warning") and not is_harmless:
            self.problems.append(f"console: {message.text}")

    async def open(self, fragment: str = "", token: str | None = None) -> Page:
        """Show what a fragment of the address means, and wait for it.

        The first time the page is loaded, with the token as if it had been entered.
        """
        if token is not None and self.page.url == "about:blank":
            await self.page.add_init_script(f"sessionStorage.setItem('naksha.token', '{token}')")
            await self.page.goto(self.base)
        await self.page.goto(f"{self.base}#")
        await self.page.goto(f"{self.base}#{fragment}")
        await self.map_idle()
        return self.page

    async def map_idle(self) -> None:
        """Wait until the page shows everything."""
        await self.page.wait_for_function("() => window.naksha?.isIdle()", timeout=60_000)

    async def ids(self) -> set[str]:
        """The ids of the features that the map shows."""
        await self.map_idle()
        return set(await self.page.evaluate("() => window.naksha.shownIds()"))

    async def pixel(self, longitude: float, latitude: float) -> tuple[float, float]:
        """The place of a position on the page."""
        found: list[float] = await self.page.evaluate(
            """([x, y]) => {
                const { map } = window.naksha.mapView;
                const box = map.getCanvas().getBoundingClientRect();
                const point = map.project([x, y]);
                return [box.left + point.x, box.top + point.y];
            }""",
            [longitude, latitude],
        )
        return found[0], found[1]

    async def picture(self, name: str) -> None:
        """Keep a picture of the page as it is."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=SCREENSHOTS / f"{name}.png")


async def _visit(browser: Browser, city: City, **options: Any) -> AsyncIterator[Visit]:
    defaults: dict[str, Any] = {
        "viewport": {"width": 1100, "height": 760},
        "color_scheme": "light",
        "reduced_motion": "reduce",
    }
    context = await browser.new_context(**{**defaults, **options})
    visit = Visit(await context.new_page(), city.url)
    await visit.guard()
    yield visit
    await context.close()


@pytest.fixture(scope="module")
async def shared_visit(browser: Browser, city: City) -> AsyncIterator[Visit]:
    async for visit in _visit(browser, city):
        yield visit


@pytest.fixture
def visit(shared_visit: Visit) -> Iterator[Visit]:
    """A page that the tests of a module share, as loading the map takes seconds."""
    yield shared_visit
    problems, shared_visit.problems = shared_visit.problems, []
    assert problems == []


@pytest.fixture
async def fresh_visit(
    browser: Browser, city: City, request: pytest.FixtureRequest
) -> AsyncIterator[Visit]:
    """A page of its own; parametrize it indirectly with options of the browser's context."""
    async for visit in _visit(browser, city, **getattr(request, "param", {})):
        yield visit
        assert visit.problems == []
