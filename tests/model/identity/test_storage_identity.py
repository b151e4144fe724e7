"""States, transactions and versions that belong to a forked storage."""

import pytest

from naksha.model.collection import CollectionInfo
from naksha.model.errors import VersionNotFound
from naksha.model.identity.guid import Guid
from naksha.model.identity.storage_identity import FormerIdentity, StorageIdentity
from naksha.model.identity.uuids import Uuid
from naksha.model.write_checks import lock_of

DAY = 2026_11_17 * 10**11
ROADS = CollectionInfo(id="roads", number=1)
TOWN = FormerIdentity("town", 1, DAY + 10, 5, {"roads": 100})
COPY = FormerIdentity("copy", 2, DAY + 20, 9, {"roads": 150, "places": 3})
FORKED = StorageIdentity("again", 3, (TOWN, COPY))


@pytest.mark.parametrize(
    ("id", "number", "first", "last"),
    [("town", 1, 1, 100), ("copy", 2, 101, 150), ("again", 3, 151, 10**6)],
)
def test_each_identity_has_its_row_numbers(id: str, number: int, first: int, last: int) -> None:
    for i, is_own in ((first - 1, False), (first, True), (last, True), (last + 1, id == "again")):
        if i == 0:
            continue
        guid = str(Guid.of(id, "roads", DAY + 1, i))
        uuid = str(Uuid.of_state(DAY + 1, ROADS.number, i, number))
        for state_id in (guid, uuid):
            assert lock_of(state_id, FORKED, ROADS) == (i if is_own else None), state_id


def test_a_collection_made_after_a_fork_has_no_states_of_before() -> None:
    for id, is_own in (("town", False), ("copy", True), ("again", False)):
        assert FORKED.wrote(Guid.of(id, "places", DAY, 2), "places") is is_own
    assert FORKED.wrote(Guid.of("again", "places", DAY, 4), "places")
    assert FORKED.wrote(Guid.of("again", "later", DAY, 1), "later")


def test_a_transaction_has_the_number_of_its_time() -> None:
    for txn, number in ((DAY + 10, 1), (DAY + 11, 2), (DAY + 20, 2), (DAY + 21, 3)):
        assert FORKED.number_at(txn) == number
        assert FORKED.txn_of(str(Uuid.of_txn(txn, number))) == txn
        with pytest.raises(VersionNotFound):
            FORKED.txn_of(str(Uuid.of_txn(txn, number % 3 + 1)))
    assert FORKED.txn_of(str(DAY + 1)) == DAY + 1


def test_a_subscription_goes_on_where_versions_are_the_same() -> None:
    """The position is a version of the storage that had the number."""
    assert FORKED.shares_versions(3, 100)
    assert FORKED.shares_versions(1, 5)
    assert not FORKED.shares_versions(1, 6)
    assert FORKED.shares_versions(2, 9)
    assert not FORKED.shares_versions(4, 1)
