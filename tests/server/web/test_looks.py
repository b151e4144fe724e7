"""Light, dark and phone width: no serious findings of axe, and a picture of each state."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import expect

from tests.docs.blocks import ROOT
from tests.server.web.conftest import City, Visit
from tests.server.web.places import first_version

pytestmark = pytest.mark.parametrize("city", ["file"], indirect=True, scope="module")

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
LOOKS = [
    pytest.param({}, id="light"),
    pytest.param({"color_scheme": "dark"}, id="dark"),
    pytest.param(PHONE, id="phone"),
]
STATES = {
    "spaces": "",
    "space": "space=city",
    "colours": "space=city&color=kind",
    "filtered": "space=city&tags=checked",
    "feature": "space=city&feature=bridge",
    "gone": "space=city&feature=cafe",
    "past": "space=city&v={first}",
    "empty": "space=empty",
    "missing": "space=elsewhere",
}


@pytest.mark.parametrize("fresh_visit", LOOKS, indirect=True)
async def test_every_state_is_accessible(
    city: City, fresh_visit: Visit, request: pytest.FixtureRequest
) -> None:
    visit, look = fresh_visit, request.node.callspec.id.removesuffix("-file")
    with city.client(city.ann) as client:
        first = first_version(client)
    await visit.page.goto(city.url)
    await expect(visit.page.get_by_label("Token")).to_be_visible()
    await visit.picture(f"token-{look}")
    found = await findings(visit)
    await visit.page.get_by_label("Token").fill(city.ann)
    await visit.page.get_by_role("button", name="Continue").click()
    for name, fragment in STATES.items():
        await visit.open(fragment.format(first=first))
        await visit.picture(f"{name}-{look}")
        found += [f"{name}: {one}" for one in await findings(visit)]
    assert found == []


async def findings(visit: Visit) -> list[str]:
    """Serious and critical findings of axe-core."""
    # The page's own policy forbids other scripts, and the browser's remote control is not one.
    await visit.page.evaluate(AXE.read_text())
    result: dict[str, Any] = await visit.page.evaluate(
        "() => axe.run(document, { resultTypes: ['violations'] })"
    )
    return [
        f"{one['id']} {node['target']}: {node['failureSummary']}"
        for one in result["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]
