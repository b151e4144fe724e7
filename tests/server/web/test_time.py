"""Time: the slider shows the map at a version, with a histogram of edits and tags as marks."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from playwright.async_api import Error, Route, expect

from tests.server.web.conftest import City, Visit
from tests.server.web.places import first_version

AT_FIRST = {"bridge", "main-street", "park", "cafe"}
NOW = {"bridge", "main-street", "park", "school"}


async def test_the_slider_shows_the_map_at_each_version(city: City, visit: Visit) -> None:
    page = await visit.open("space=city", token=city.ann)
    slider = page.get_by_role("slider", name="Version")
    await expect(slider).to_have_value("3")
    await slider.focus()
    await page.keyboard.press("Home")
    assert await visit.ids() == AT_FIRST
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("ArrowRight")
    assert await visit.ids() == {"bridge", "main-street", "park"}
    with city.client(city.ann) as client:
        assert f"v={first_version(client) + 2}" in page.url
    await page.get_by_role("button", name="Back to now").click()
    assert await visit.ids() == NOW
    assert "v=" not in page.url.partition("#")[2].replace("&map=", "")


async def test_edits_are_a_histogram_and_tags_are_marks(city: City, visit: Visit) -> None:
    page = await visit.open("space=city", token=city.ann)
    histogram = page.get_by_role("img", name="Histogram: 7 edits in 4 versions")
    await expect(histogram.locator("rect")).to_have_count(4)
    await page.get_by_role("button", name="Show the tag as-built").click()
    assert await visit.ids() == AT_FIRST
    status = page.get_by_role("region", name="Time").get_by_role("status")
    await expect(status).to_contain_text("ann · 4 edits")


async def test_the_history_plays_to_its_end(city: City, visit: Visit) -> None:
    page = await visit.open("space=city&v=1", token=city.ann)
    await page.get_by_role("button", name="Play the history").click()
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    await expect(page.get_by_role("slider", name="Version")).to_have_value("3", timeout=30_000)
    await expect(page.get_by_role("button", name="Play the history")).to_be_visible()
    assert await visit.ids() == NOW


async def test_a_link_shows_the_same_version_filter_and_place(city: City, visit: Visit) -> None:
    with city.client(city.ann) as client:
        first = first_version(client)
    fragment = f"space=city&v={first}&q=kind%3Dfood&map=12.00/50.11000/8.60000"
    page = await visit.open(fragment, token=city.ann)
    assert await visit.ids() == {"cafe"}
    zoom = await page.evaluate("() => naksha.mapView.map.getZoom()")
    assert zoom == 12


async def test_the_last_version_is_shown_however_fast_the_slider_moves(
    city: City, visit: Visit
) -> None:
    page = await visit.open("space=city", token=city.ann)
    with city.client(city.ann) as client:
        first = first_version(client)
    late = f"versionRef={first}&"

    async def delayed(route: Route) -> None:
        # The tiles of the version before arrive after those of the last one.
        await asyncio.sleep(1.5 if late in route.request.url else 0)
        with suppress(Error):  # the page cancelled the request
            await route.continue_()

    await page.route("**/tile/web/**", delayed)
    await page.get_by_role("slider", name="Version").focus()
    await page.keyboard.press("Home")
    await page.wait_for_timeout(300)
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("ArrowRight")
    assert await visit.ids() == {"bridge", "main-street", "park"}
    await page.wait_for_timeout(2_000)
    assert await visit.ids() == {"bridge", "main-street", "park"}
    await page.unroute("**/tile/web/**")
