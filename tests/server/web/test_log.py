"""Log: changesets with filters; open one, revert it, roll back to it, tag it."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Locator, Page, expect

from tests.server.web.conftest import City, Visit
from tests.server.web.districts import SPACE, Versions, fill_district


@pytest.fixture(scope="module")
def versions(city: City) -> Versions:
    with city.client(city.ann) as ann, city.client(city.ben) as ben:
        return fill_district(ann, ben)


async def test_changesets_are_listed_and_filtered(
    city: City, visit: Visit, versions: Versions
) -> None:
    page = await visit.open(f"space={SPACE}&panel=log", token=city.ann)
    rows = page.get_by_role("list", name="Changesets, newest first").get_by_role("button")
    await expect(rows).to_have_count(6)
    await expect(rows.nth(4)).to_contain_text(f"Version {versions.ben}")
    await expect(rows.nth(4)).to_contain_text("ben ·")
    await expect(rows.nth(4)).to_contain_text(re.compile("1 created.*3 changed"))
    await expect(rows.nth(5)).to_contain_text("survey")
    await visit.picture("log")
    await page.get_by_text("Filter", exact=True).click()
    await page.get_by_label("Changed by").fill("ben")
    await page.get_by_label("Changed by").press("Enter")
    await expect(rows).to_have_count(1)
    page = await visit.open(f"space={SPACE}&panel=log&map=14.00/50.08000/8.66200", token=city.ann)
    await page.get_by_text("Filter", exact=True).click()
    # Only the tree was changed here; the box around Ben's changes is much larger.
    await page.get_by_role("button", name="Only in the area in view").click()
    await expect(rows).to_have_count(2)
    await page.get_by_label("To the day").fill("2001-01-01")
    await expect(page.get_by_text("No changeset matches.")).to_be_visible()
    await page.get_by_role("button", name="Show all").click()
    await expect(rows).to_have_count(6)


async def test_a_changeset_shows_its_changes_and_is_tagged(
    city: City, visit: Visit, versions: Versions
) -> None:
    page = await visit.open(f"space={SPACE}&panel=log", token=city.ann)
    await row(page, versions.ben).click()
    counts = page.get_by_role("group", name="Kinds of change").get_by_role("button")
    await expect(counts).to_have_text(["1 created", "3 changed", "0 deleted"])
    await visit.map_idle()
    await visit.picture("log-entry")
    await page.get_by_role("button", name="Tag", exact=True).click()
    await page.get_by_label("Name of the tag").fill("0 not a name")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert")).to_contain_text("is not a valid tag")
    await page.get_by_label("Name of the tag").fill("market")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("button", name="Show the tag market")).to_be_visible()


async def test_a_changeset_is_reverted_and_rolled_back_after_a_dry_run(
    city: City, visit: Visit, versions: Versions
) -> None:
    page = await visit.open(f"space={SPACE}&panel=log&entry={versions.ben}", token=city.ann)
    await page.get_by_role("button", name="Revert…").click()
    await expect(page.get_by_text("4 features would change:")).to_be_visible()
    counts = page.get_by_role("group", name="Kinds of change").get_by_role("button")
    await expect(counts).to_have_text(["0 created", "3 changed", "1 deleted"])
    await visit.map_idle()
    await visit.picture("log-revert")
    assert names(city) == {"bench", "lamp", "lane", "road", "square", "tree", "yard"}
    await page.get_by_role("button", name="Revert now").click()
    await expect(page.get_by_role("heading", name=f"Revert version {versions.ben}")).to_be_visible()
    assert names(city) == {"bench", "lamp", "lane", "road", "square", "tree"}
    await page.get_by_role("button", name="All changesets").click()
    await row(page, versions.survey).click()
    await page.get_by_role("button", name="Roll back to here…").click()
    await expect(page.get_by_text("5 features would change:")).to_be_visible()
    await page.get_by_label("Message").fill("Start again")
    await page.get_by_role("button", name="Roll back now").click()
    await expect(page.get_by_role("heading", name="Start again")).to_be_visible()
    assert names(city) == {"bench", "field", "kiosk", "lane", "square", "track", "tree"}


async def test_readers_are_not_offered_what_they_may_not_do(
    city: City, fresh_visit: Visit, versions: Versions
) -> None:
    page = await fresh_visit.open(
        f"space={SPACE}&panel=log&entry={versions.ben}", token=city.reader
    )
    await expect(page.get_by_role("list", name="Changes")).to_be_visible()
    await expect(page.get_by_role("button", name="Revert…")).to_have_count(0)
    await expect(page.get_by_role("button", name="Roll back to here…")).to_have_count(0)


def row(page: Page, version: int) -> Locator:
    rows = page.get_by_role("list", name="Changesets, newest first").get_by_role("button")
    return rows.filter(has_text=f"Version {version}")


def names(city: City) -> set[str]:
    with city.client(city.ann) as client:
        found = client.get(f"/hub/spaces/{SPACE}/iterate").json()
    return {one["id"] for one in found["features"]}
