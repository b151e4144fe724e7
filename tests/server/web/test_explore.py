"""Explore: spaces, look, filter, search, and a feature with its history."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from playwright.async_api import expect

from tests.server.web.conftest import City, Visit
from tests.server.web.places import MOVED_BRIDGE, feature, first_version

NOW = {"bridge", "main-street", "park", "school"}


async def test_spaces_are_listed_with_title_count_and_last_change(city: City, visit: Visit) -> None:
    page = await visit.open(token=city.ann)
    spaces = page.get_by_role("list", name="Spaces")
    filled = spaces.get_by_role("button", name="A small city")
    await expect(filled).to_contain_text("4 features · changed")
    await expect(spaces.get_by_role("button", name="Nothing yet")).to_contain_text("0 features")
    await filled.click()
    await expect(page.get_by_role("heading", name="A small city")).to_be_visible()
    assert await visit.ids() == NOW
    assert "space=city" in page.url


async def test_an_empty_space_says_that_it_is_empty(city: City, visit: Visit) -> None:
    page = await visit.open("space=empty", token=city.ann)
    await expect(page.get_by_text("Nothing has changed on this branch yet")).to_be_visible()


async def test_a_space_that_does_not_exist_is_an_error_with_a_way_out(
    city: City, visit: Visit
) -> None:
    page = await visit.open("space=elsewhere", token=city.ann)
    await expect(page.get_by_role("alert")).to_contain_text("There is no space 'elsewhere'")
    await page.get_by_role("button", name="A small city").click()
    assert await visit.ids() == NOW


async def test_features_are_coloured_by_type_or_by_any_property(city: City, visit: Visit) -> None:
    page = await visit.open("space=city", token=city.ann)
    legend = page.get_by_role("list", name="Legend").get_by_role("listitem")
    await expect(legend).to_have_text(["points", "lines", "areas"])
    await page.get_by_label("Colour features by").select_option("kind")
    await expect(legend).to_have_text(["bridge", "park", "road", "school", "other values"])
    await visit.map_idle()
    color = await page.evaluate(
        "() => JSON.stringify(naksha.mapView.map.getPaintProperty('space-points', 'circle-color'))"
    )
    assert "school" in color
    assert "color=kind" in page.url


async def test_filters_by_property_tag_and_author_apply_to_the_map(
    city: City, visit: Visit
) -> None:
    page = await visit.open("space=city", token=city.ann)
    form = page.locator("form.condition-form")
    await form.get_by_label("Property").select_option("kind")
    await form.get_by_label("Value").fill("park,road")
    await form.get_by_role("button", name="Add").click()
    await expect(page.get_by_text("2 features shown")).to_be_visible()
    assert await visit.ids() == {"park", "main-street"}
    await page.get_by_role("textbox", name="Tags").fill("green")
    await page.get_by_role("textbox", name="Tags").press("Enter")
    await expect(page.get_by_text("1 feature shown")).to_be_visible()
    assert await visit.ids() == {"park"}
    await page.get_by_role("button", name="Show all").click()
    await page.get_by_label("Last changed by").fill("ben")
    await page.get_by_label("Last changed by").press("Enter")
    await expect(page.get_by_text("1 feature shown")).to_be_visible()
    assert await visit.ids() == {"bridge"}
    assert "author=ben" in page.url
    await visit.open("space=city")
    assert await visit.ids() == NOW


async def test_features_are_found_by_id_and_by_text(city: City, visit: Visit) -> None:
    page = await visit.open("space=city", token=city.ann)
    results = page.get_by_role("list", name="Features found").get_by_role("button")
    for text in ("school", "high", "igh sch"):
        await page.get_by_label("Id or text").fill(text)
        await page.get_by_role("button", name="Find").click()
        await expect(results).to_have_count(1)
        await expect(results).to_contain_text("High School")
    await results.click()
    await expect(page.get_by_role("heading", name="High School")).to_be_visible()


async def test_a_search_without_result_says_what_was_searched(city: City, visit: Visit) -> None:
    page = await visit.open("space=city", token=city.ann)
    await page.get_by_label("Id or text").fill("nowhere")
    await page.get_by_role("button", name="Find").click()
    await expect(page.get_by_text("No feature has the id “nowhere”")).to_be_visible()


async def test_a_click_shows_the_history_of_a_feature(city: City, visit: Visit) -> None:
    page = await visit.open("space=city", token=city.ann)
    await page.mouse.click(*await visit.pixel(*MOVED_BRIDGE))
    await expect(page.get_by_role("heading", name="New Bridge")).to_be_visible()
    properties = page.get_by_role("table", name="Properties", exact=True)
    await expect(properties.get_by_role("row", name="lanes 2")).to_be_visible()
    steps = page.get_by_role("list", name="History, newest first").locator("> li")
    await expect(steps).to_have_count(2)
    await expect(steps.nth(0)).to_contain_text(re.compile("Changed by ben.*version"))
    await expect(steps.nth(0)).to_contain_text("with test-app")
    await expect(steps.nth(0)).to_contain_text("Old Bridge → New Bridge")
    await expect(steps.nth(0)).to_contain_text("The point moved by 143 m.")
    await expect(steps.nth(1)).to_contain_text("Created by ann")
    await steps.nth(0).get_by_role("button", name="Geometry before and after").click()
    await visit.map_idle()
    drawn = await page.evaluate(
        """() => naksha.mapView.map.querySourceFeatures('overlay-feature')
            .map((one) => [one.properties.role, one.geometry.coordinates[0].toFixed(3)])
            .sort()"""
    )
    assert [tuple(one) for one in drawn] == [("after", "8.602"), ("before", "8.600")]


async def test_a_deleted_feature_shows_its_history(city: City, visit: Visit) -> None:
    page = await visit.open("space=city&feature=cafe", token=city.ann)
    await expect(page.get_by_text("does not exist now")).to_be_visible()
    steps = page.get_by_role("list", name="History, newest first").locator("> li")
    await expect(steps.nth(0)).to_contain_text("Deleted by ann")
    with city.client(city.ann) as client:
        first = first_version(client)
    await steps.nth(1).get_by_role("button", name=f"Map at version {first}").click()
    assert "cafe" in await visit.ids()
    await expect(page.get_by_role("heading", name="Café Zürich")).to_be_visible()


async def test_tiles_that_do_not_arrive_are_an_error_with_a_way_out(
    city: City, visit: Visit
) -> None:
    page = await visit.open("space=city", token=city.ann)
    await page.route("**/tile/web/**", lambda route: route.abort())
    await page.get_by_label("Last changed by").fill("ben")
    await page.get_by_label("Last changed by").press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("The hub does not respond")
    await page.unroute("**/tile/web/**")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_role("alert")).to_have_count(0)
    assert await visit.ids() == {"bridge"}


async def test_a_large_space_is_shown_as_a_sample_until_the_map_is_close(
    city: City, visit: Visit
) -> None:
    with city.client(city.ann) as client:
        client.post("/hub/spaces", json={"id": "large"}).raise_for_status()
        for row in range(8):
            body = {"type": "FeatureCollection", "features": [*dots(row)]}
            headers = {"Accept": "application/x-empty"}
            answer = client.put("/hub/spaces/large/features", json=body, headers=headers)
            answer.raise_for_status()
    await visit.page.reload()
    page = await visit.open("space=large", token=city.ann)
    notice = page.get_by_text("A sample is shown. Zoom in to see all of the 32,000 features.")
    await expect(notice).to_be_visible()
    assert 0 < len(await visit.ids()) < 8_000
    await page.goto(f"{city.url}#space=large&map=12.00/50.10000/8.10000")
    await visit.map_idle()
    await expect(notice).to_have_count(0)


def dots(row: int) -> Iterator[dict[str, Any]]:
    """4,000 features in a row of the space `large`."""
    for n in range(4_000):
        yield feature(f"dot-{row}-{n}", "Point", [8 + n / 20_000, 50 + row / 40], name="dot")
