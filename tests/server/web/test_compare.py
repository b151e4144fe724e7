"""Compare: what differs between two versions, tags or branches, in a list and on the map."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.server.web.conftest import City, Visit
from tests.server.web.districts import SPACE, Versions, fill_district

DRAWN = """() => [...new Set(naksha.mapView.map.queryRenderedFeatures()
    .filter((one) => one.source === 'changes-marks')
    .map((one) => `${one.properties.action} ${one.properties.change}`))].sort()"""
ALL = {
    "created": {"lamp", "road", "yard"},
    "updated": {"lane", "square", "tree"},
    "deleted": {"field", "kiosk", "track"},
}


@pytest.fixture(scope="module")
def versions(city: City) -> Versions:
    with city.client(city.ann) as ann, city.client(city.ben) as ben:
        return fill_district(ann, ben)


async def drawn(visit: Visit) -> dict[str, set[str]]:
    """The changes whose marks are on the map, by kind."""
    await visit.map_idle()
    pairs: list[str] = await visit.page.evaluate(DRAWN)
    found: dict[str, set[str]] = {}
    for action, _, name in (one.partition(" ") for one in pairs):
        found.setdefault(action, set()).add(name)
    return found


async def test_two_versions_are_compared_in_a_list_and_on_the_map(
    city: City, visit: Visit, versions: Versions
) -> None:
    fragment = f"space={SPACE}&panel=compare&from={versions.survey}"
    page = await visit.open(fragment, token=city.ann)
    counts = page.get_by_role("group", name="Kinds of change").get_by_role("button")
    await expect(counts).to_have_text(["3 created", "3 changed", "3 deleted"])
    await expect(page.get_by_role("list", name="Changes").get_by_role("button")).to_have_count(9)
    await page.get_by_role("button", name="Show all on the map").click()
    assert await drawn(visit) == ALL
    await visit.picture("compare")
    await counts.nth(1).click()
    await expect(counts.nth(1)).to_have_attribute("aria-pressed", "false")
    assert await drawn(visit) == {name: ids for name, ids in ALL.items() if name != "updated"}
    assert "hide=updated" in page.url


async def test_tags_and_branches_are_chosen_by_name(
    city: City, visit: Visit, versions: Versions
) -> None:
    page = await visit.open(f"space={SPACE}&panel=compare", token=city.ann)
    await page.get_by_label("From").select_option(label="Tag survey")
    await page.get_by_label("To, on the map").select_option(
        label=f"{versions.ben}: ben, {await day(page)}"
    )
    counts = page.get_by_role("group", name="Kinds of change").get_by_role("button")
    await expect(counts).to_have_text(["1 created", "3 changed", "0 deleted"])
    await page.get_by_label("From").select_option(label="Latest")
    await page.get_by_label("To, on the map").select_option(label="Branch plan")
    await expect(counts).to_have_text(["1 created", "0 changed", "0 deleted"])
    await expect(page.get_by_role("list", name="Changes")).to_contain_text("Pond")


async def day(page: Page) -> str:
    found: str = await page.evaluate(
        "() => new Intl.DateTimeFormat(undefined, { dateStyle: 'medium' }).format(Date.now())"
    )
    return found


async def test_the_vertices_of_a_geometry_are_compared(
    city: City, visit: Visit, versions: Versions
) -> None:
    fragment = f"space={SPACE}&panel=compare&from={versions.survey}"
    page = await visit.open(fragment, token=city.ann)
    await page.get_by_role("button", name="changed: Market Square").click()
    detail = page.get_by_role("region", name="Chosen change")
    await expect(detail).to_contain_text("Vertices: 2 added, 1 removed, 3 unchanged.")
    await expect(detail).to_contain_text("Square → Market Square")
    await page.get_by_role("button", name="changed: Lane").click()
    await expect(detail).to_contain_text("Vertices: 1 moved (at most 1.1 km), 2 unchanged.")
    await visit.map_idle()
    roles = await page.evaluate(
        """() => naksha.mapView.map.querySourceFeatures('changes-vertices')
            .map((one) => one.properties.role)"""
    )
    assert {"kept", "moved-from", "moved-to", "move", "chosen"} <= set(roles)
    await detail.get_by_role("button", name="Feature and history").click()
    await expect(page.get_by_role("heading", name="Lane")).to_be_visible()


async def test_changes_are_filtered_by_author_and_area(
    city: City, visit: Visit, versions: Versions
) -> None:
    fragment = f"space={SPACE}&panel=compare&from={versions.survey}"
    page = await visit.open(f"{fragment}&by=ben", token=city.ann)
    counts = page.get_by_role("group", name="Kinds of change").get_by_role("button")
    await expect(counts).to_have_text(["1 created", "3 changed", "0 deleted"])
    await page.get_by_label("Changed by").fill("")
    await page.get_by_label("Changed by").press("Enter")
    await expect(counts).to_have_text(["3 created", "3 changed", "3 deleted"])
    page = await visit.open(f"{fragment}&by=ann,ben&map=14.00/50.08000/8.66200", token=city.ann)
    await page.get_by_role("button", name="Only in the area in view").click()
    await expect(counts).to_have_text(["0 created", "1 changed", "0 deleted"])
    assert "area=8." in page.url
    await page.get_by_role("button", name="Everywhere").click()
    await expect(counts).to_have_text(["3 created", "3 changed", "3 deleted"])


async def test_a_link_reproduces_a_swiped_comparison(
    city: City, visit: Visit, versions: Versions
) -> None:
    fragment = f"space={SPACE}&v={versions.ben}&panel=compare&from={versions.survey}&mode=swipe"
    page = await visit.open(f"{fragment}&change=square", token=city.ann)
    await expect(page.get_by_role("region", name="Chosen change")).to_contain_text("Market Square")
    divider = page.get_by_role("slider", name="Divider between the two versions")
    await expect(divider).to_have_attribute("aria-valuenow", "50")
    await divider.focus()
    await page.keyboard.press("ArrowLeft")
    await expect(divider).to_have_attribute("aria-valuenow", "45")
    await expect(page.locator(".swipe-label.before")).to_have_text("Tag survey")
    await expect(page.locator(".swipe-map canvas")).to_be_visible()
    await visit.picture("compare-swipe")
    await page.get_by_role("button", name="One map").click()
    await expect(divider).to_have_count(0)
