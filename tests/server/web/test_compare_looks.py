"""Compare and Log in light, dark and at phone width: no serious findings of axe, and pictures."""

from __future__ import annotations

import pytest

from tests.server.web.conftest import City, Visit
from tests.server.web.districts import SPACE, fill_district
from tests.server.web.test_looks import LOOKS, findings

pytestmark = pytest.mark.parametrize("city", ["file"], indirect=True, scope="module")

STATES = {
    "compare": "panel=compare&from={survey}",
    "vertices": "panel=compare&from={survey}&change=square",
    "swipe": "panel=compare&from={survey}&mode=swipe",
    "log": "panel=log&by=ann",
    "changeset": "panel=log&entry={ben}",
    "rollback": "panel=log&entry={survey}&undo=rollback",
}


@pytest.mark.parametrize("fresh_visit", LOOKS, indirect=True)
async def test_every_state_of_compare_and_log_is_accessible(
    city: City, fresh_visit: Visit, request: pytest.FixtureRequest
) -> None:
    visit, look = fresh_visit, request.node.callspec.id.removesuffix("-file")
    with city.client(city.ann) as ann, city.client(city.ben) as ben:
        space = f"{SPACE}-{look}"
        versions = fill_district(ann, ben, space)
    found = []
    for name, fragment in STATES.items():
        page = await visit.open(
            f"space={space}&{fragment.format(**versions._asdict())}", token=city.ann
        )
        await page.locator(".change-mark").first.wait_for()
        await visit.map_idle()
        await visit.picture(f"{name}-{look}")
        found += [f"{name}: {one}" for one in await findings(visit)]
    assert found == []
