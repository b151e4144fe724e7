"""The oracle, checked on a few sequences with hand-written results."""

import pytest

from naksha.model.errors import (
    CollectionExists,
    CollectionNotFound,
    Conflict,
    Expired,
    FeatureExists,
    FeatureNotFound,
)
from naksha.model.query import States
from naksha.testing.models.oracle import Oracle
from naksha.testing.models.oracle_state import OracleCollection
from naksha.testing.storage.suite_support import feature, point


@pytest.fixture
def oracle() -> Oracle:
    """An oracle with one empty collection, at version 1."""
    oracle = Oracle()
    session = oracle.begin("app")
    session.create_collection(OracleCollection("c"))
    session.commit()
    return oracle


def upsert(oracle: Oracle, *features: dict[str, object]) -> int | None:
    session = oracle.begin("app")
    session.upsert("c", features)
    return session.commit()


def delete(oracle: Oracle, *ids: str) -> int | None:
    session = oracle.begin("app")
    session.delete("c", ids)
    return session.commit()


def test_every_version_stays_as_it_was(oracle: Oracle) -> None:
    upsert(oracle, feature("x", n=1))
    upsert(oracle, feature("x", n=2), feature("y"))
    delete(oracle, "x")
    live = [[s.id for s in oracle.read("c", at=n)] for n in range(oracle.last + 1)]
    dead = [[s.id for s in oracle.read("c", States.DELETED, n)] for n in range(oracle.last + 1)]
    assert live == [[], [], ["x"], ["x", "y"], ["y"]]
    assert dead == [[], [], [], [], ["x"]]
    assert [(s.id, s.action, s.txn, s.txn_next) for s in oracle.read("c", States.ALL)] == [
        ("x", "CREATE", 2, 3),
        ("x", "UPDATE", 3, 4),
        ("x", "DELETE", 4, 0),
        ("y", "CREATE", 3, 0),
    ]


def test_writes_without_changes_create_no_version(oracle: Oracle) -> None:
    upsert(oracle, feature("x", n=1))
    assert upsert(oracle, feature("x", n=1.0)) is None
    assert delete(oracle, "nobody") is None
    assert upsert(oracle, feature("x", n=True)) == 3


def test_a_rolled_back_session_leaves_nothing(oracle: Oracle) -> None:
    session = oracle.begin("app")
    session.create("c", [feature("x")])
    session.drop_collection("c")
    assert oracle.read("c") == []
    assert oracle.last == 1


def test_only_the_last_state_of_a_transaction_is_seen(oracle: Oracle) -> None:
    session = oracle.begin("app")
    session.create("c", [feature("x", n=1), feature("y")])
    session.update("c", [feature("x", n=2)])
    session.delete("c", ["y"])
    session.commit()
    states = oracle.read("c", States.ALL)
    assert [(s.id, s.action, s.version) for s in states] == [("x", "CREATE", 1), ("y", "DELETE", 2)]


def test_created_again_counts_on_and_after_a_purge_does_not(oracle: Oracle) -> None:
    for _ in range(2):
        upsert(oracle, feature("x"))
        delete(oracle, "x")
    assert oracle.read("c", States.DELETED)[0].version == 4
    session = oracle.begin("app")
    assert session.purge("c", ["x", "nobody"]) == [
        ("x", "PURGED", None),
        ("nobody", "RETAINED", None),
    ]
    session.commit()
    upsert(oracle, feature("x"))
    assert oracle.read("c")[0].version == 1
    assert [s.version for s in oracle.read("c", States.DELETED, 5)] == [4]


def test_writes_with_history_off_expire_what_was_before(oracle: Oracle) -> None:
    upsert(oracle, feature("x", n=1))
    session = oracle.begin("app")
    session.change_collection("c", history=False)
    session.commit()
    assert len(oracle.read("c", at=2)) == 1
    upsert(oracle, feature("x", n=2))
    with pytest.raises(Expired) as caught:
        oracle.read("c", at=3)
    assert caught.value.oldest == 4
    assert [s.rest["properties"] for s in oracle.read("c", States.ALL)] == [{"n": 2}]


def test_locks_and_merges(oracle: Oracle) -> None:
    upsert(oracle, point("x", a=1, b=1))
    base = oracle.read("c")[0].identity
    upsert(oracle, point("x", a=2, b=1))
    mine = [point("x", a=1, b=2)]
    with pytest.raises(Conflict):
        oracle.begin("app").update("c", mine, [base])
    session = oracle.begin("app")
    ((_, action, state),) = session.update("c", mine, [base], merge=True)
    assert state is not None
    assert (action, state.rest["properties"]) == ("UPDATED", {"a": 2, "b": 2})
    assert state.merged == base
    with pytest.raises(Conflict):
        oracle.begin("app").update("c", [point("x", a=3, b=1)], [base], merge=True)


def test_errors(oracle: Oracle) -> None:
    upsert(oracle, feature("x"))
    session = oracle.begin("app")
    with pytest.raises(FeatureExists):
        session.create("c", [feature("x")])
    with pytest.raises(FeatureNotFound):
        session.update("c", [feature("y")])
    with pytest.raises(FeatureNotFound):
        session.restore("c", ["x"])
    with pytest.raises(Conflict):
        session.purge("c", ["x"])
    session.drop_collection("c")
    with pytest.raises(CollectionExists):
        session.create_collection(OracleCollection("c"))
    with pytest.raises(CollectionNotFound):
        session.read("c")
    session.restore_collection("c")
    assert [s.id for s in session.read("c")] == ["x"]


def test_authors(oracle: Oracle) -> None:
    session = oracle.begin("app", "me")
    session.create("c", [feature("mine")])
    session.commit()
    upsert(oracle, feature("mine", n=1), feature("apps"))
    session = oracle.begin("app")
    session.change_collection("c", author="owner")
    session.create("c", [feature("owned")])
    session.commit()
    assert {s.id: s.author for s in oracle.read("c")} == {
        "mine": "me",
        "apps": "app",
        "owned": "owner",
    }
