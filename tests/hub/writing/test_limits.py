"""A token may allow so many features in a space and no more."""

import msgspec
import pytest

from naksha.hub.context import UsageLimits
from naksha.hub.requests import Modification, WriteFeatures
from naksha.hub.responses import Written
from naksha.model.errors import Forbidden
from tests.hub.writing.support import CONTEXT, Desk, feature, modification

FEW = msgspec.structs.replace(
    CONTEXT,
    actor=msgspec.structs.replace(CONTEXT.actor, limits=UsageLimits(max_features_per_space=3)),
)


async def write(desk: Desk, *todo: Modification, transactional: bool = True) -> Written:
    request = WriteFeatures(modifications=todo, transactional=transactional)
    return await desk.realm.send(desk.space_id, request, FEW)


@pytest.mark.parametrize("transactional", [True, False])
async def test_no_more_features_are_created_than_the_token_allows(
    desk: Desk, transactional: bool
) -> None:
    first = modification(*(feature(id) for id in "abc"), e="replace")
    assert (await write(desk, first)).inserted == ("a", "b", "c")
    for how in ("replace", "patch", "error"):
        more = modification(feature("d"), e=how)
        with pytest.raises(Forbidden, match="4 features, and the token allows 3"):
            await write(desk, more, transactional=transactional)
    again = await write(desk, modification(feature("a", name="A")), transactional=transactional)
    assert again.updated == ("a",)
    gone = modification(ids=("a",), e="delete", ne="retain")
    swapped = await write(desk, gone, modification(feature("d")), transactional=transactional)
    assert (swapped.inserted, swapped.deleted) == (("d",), ("a",))


async def test_who_has_no_limit_may_go_on_and_others_still_change(desk: Desk) -> None:
    await desk.write(*(feature(id) for id in "abcde"))
    assert (await write(desk, modification(feature("a", name="A")))).updated == ("a",)
    with pytest.raises(Forbidden):
        await write(desk, modification(feature("f")))
