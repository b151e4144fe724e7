"""Tokens: asked for when the hub has keys, kept for the session, sent with every request."""

from __future__ import annotations

import pytest
from playwright.async_api import Request, expect

from tests.server.web.conftest import City, Visit

pytestmark = pytest.mark.parametrize("city", ["file"], indirect=True, scope="module")


async def test_a_token_is_asked_for_and_sent_with_every_request(
    city: City, fresh_visit: Visit
) -> None:
    page = fresh_visit.page
    sent: dict[str, str | None] = {}

    async def note(request: Request) -> None:
        sent[request.url] = await request.header_value("authorization")

    page.on("request", note)
    await page.goto(city.url)
    await expect(page.get_by_text("This hub requires a token")).to_be_visible()
    await page.get_by_label("Token").fill("not a token")
    await page.get_by_role("button", name="Continue").click()
    await expect(page.get_by_role("alert")).to_contain_text("token")
    sent.clear()
    await page.get_by_label("Token").fill(city.ann)
    await page.get_by_role("button", name="Continue").click()
    await page.get_by_role("button", name="A small city").click()
    await fresh_visit.map_idle()
    calls = {url: token for url, token in sent.items() if "/hub/" in url}
    assert any("/tile/web/" in url for url in calls)
    assert set(calls.values()) == {f"Bearer {city.ann}"}
    assert not any("access_token" in url for url in calls)
    assert all(token is None for url, token in sent.items() if "/hub/" not in url)
    await page.reload()
    await fresh_visit.map_idle()
    await expect(page.get_by_role("heading", name="A small city")).to_be_visible()
    assert await page.evaluate("() => localStorage.getItem('naksha.token')") is None


async def test_a_token_can_be_forgotten(city: City, fresh_visit: Visit) -> None:
    page = await fresh_visit.open(token=city.ann)
    await page.get_by_role("button", name="Forget the token").click()
    await expect(page.get_by_text("This hub requires a token")).to_be_visible()


async def test_the_caller_is_named_with_their_rights(city: City) -> None:
    with city.client(city.reader) as client:
        me = client.get("/hub/me").json()
    assert (me["appId"], me["author"], me["anonymous"]) == ("test-app", "rita", False)
    assert me["rights"]["readFeatures"] == "all"
    assert "updateFeatures" not in me["rights"]
