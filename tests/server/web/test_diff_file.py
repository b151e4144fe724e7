"""The file of `naksha diff --map`, opened from disk with the network cut."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Browser, expect

import naksha
from tests.cli.command import naksha as run
from tests.server.web.conftest import SCREENSHOTS
from tests.server.web.districts import SQUARE, SQUARE_CUT
from tests.server.web.places import feature


def fill(location: str) -> None:
    """Write a square that is cut, a kiosk that is deleted, and a lamp that is created."""
    with naksha.connect(location, app_id="editor", author="anna") as db:
        places = db.create_collection("places")
        square = feature("square", "Polygon", [SQUARE], name="Square")
        places.create([square, feature("kiosk", "Point", [8.68, 50.07], name="Kiosk")])
        db.versions.tag("survey")
        places.update(feature("square", "Polygon", [SQUARE_CUT], name="Market Square"))
        places.create(feature("lamp", "Point", [8.66, 50.12], name="Lamp"))
        places.delete("kiosk")


async def test_it_opens_from_disk_without_a_network(browser: Browser, tmp_path: Path) -> None:
    location, path = f"file:{tmp_path}/town.naksha", tmp_path / "town.html"
    fill(location)
    done = run("diff", "--storage", location, "places", "survey", "HEAD", "--map", str(path))
    assert done.returncode == 0, done.stderr
    context = await browser.new_context(
        offline=True, viewport={"width": 1100, "height": 760}, reduced_motion="reduce"
    )
    page = await context.new_page()
    problems: list[str] = []
    requests: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda one: problems.append(one.text) if one.type == "error" else None)
    page.on("request", lambda request: requests.append(request.url))
    await page.goto(path.as_uri())
    await page.wait_for_function("() => window.naksha?.isIdle()", timeout=60_000)
    counts = page.get_by_role("group", name="Kinds of change").get_by_role("button")
    await expect(counts).to_have_text(["1 created", "1 changed", "1 deleted"])
    await page.get_by_role("button", name="changed: Market Square").click()
    await expect(page.get_by_text("Vertices: 2 added, 1 removed, 3 unchanged.")).to_be_visible()
    await page.wait_for_function("() => window.naksha.isIdle()")
    added = "{ layers: ['changes-vertices-added'] }"
    drawn = await page.evaluate(f"() => naksha.mapView.map.queryRenderedFeatures({added}).length")
    assert drawn == 2
    box = await page.get_by_role("region", name="Map.").bounding_box()
    assert box
    assert min(box["width"], box["height"]) > 600
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=SCREENSHOTS / "diff-file.png")
    await page.get_by_role("button", name="Swipe").click()
    await expect(
        page.get_by_role("slider", name="Divider between the two versions")
    ).to_be_visible()
    await context.close()
    assert problems == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
