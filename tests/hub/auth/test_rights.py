"""The rights matrix: what is granted and, more important, what is refused."""

import timeit
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.hub.auth import resources
from naksha.hub.auth.resources import Resource, ResourceKind
from naksha.hub.auth.rights import (
    ACTIONS,
    NO_RIGHTS,
    Right,
    Rights,
    all_rights,
    parse_rights,
    parse_role,
)
from naksha.model.errors import Forbidden, InvalidArgument

ROADS = resources.space(
    "roads", owner="ann", tags=["open", "eu-west"], packages=["base"], connector_ids=["db", "log"]
)
IN_ROADS = resources.features(ROADS, storage_id="maps-1", collection_id="roads")
MAIN = resources.feature(IN_ROADS, "main", tags=["open", "checked"], app_id="editor", author="bob")
BARE = resources.space("bare")


def rights(section: str, **actions: Any) -> Rights:
    return parse_rights({section: actions})


# ---- One attribute map ---------------------------------------------------------------------------

MAPS: list[tuple[str, dict[str, Any], Resource, bool]] = [
    ("an empty map grants all", {}, ROADS, True),
    ("also what has no attributes", {}, Resource(ResourceKind.SPACE, {}), True),
    ("an exact value", {"owner": "ann"}, ROADS, True),
    ("another value", {"owner": "bob"}, ROADS, False),
    ("not the beginning of a value", {"owner": "an"}, ROADS, False),
    ("not in another case", {"owner": "Ann"}, ROADS, False),
    ("all attributes must match", {"owner": "ann", "id": "roads"}, ROADS, True),
    ("not only one of them", {"owner": "ann", "id": "places"}, ROADS, False),
    ("an attribute that is unknown", {"colour": "red"}, ROADS, False),
    ("an attribute that the resource has not", {"owner": "ann"}, BARE, False),
    ("nor with a star", {"owner": "*"}, BARE, False),
    ("a star alone is any value", {"owner": "*"}, ROADS, True),
    ("a star at the end", {"id": "ro*"}, ROADS, True),
    ("a star after the whole value", {"id": "roads*"}, ROADS, True),
    ("a star after something else", {"id": "pl*"}, ROADS, False),
    ("a star inside is a character", {"id": "r*s"}, ROADS, False),
    ("only the last star stands for more", {"id": "ro**"}, ROADS, False),
    ("one among several values", {"tags": "open"}, ROADS, True),
    ("none of several values", {"tags": "closed"}, ROADS, False),
    ("a star among several values", {"tags": "eu-*"}, ROADS, True),
    ("a star and no values", {"tags": "*"}, BARE, False),
    ("a list wants all its values", {"tags": ["open", "eu-west"]}, ROADS, True),
    ("a list with a star", {"tags": ["eu-*", "open"]}, ROADS, True),
    ("a list of which one is missing", {"tags": ["open", "closed"]}, ROADS, False),
    ("a list against one value", {"owner": ["ann"]}, ROADS, True),
    ("one value cannot be two", {"owner": ["ann", "bob"]}, ROADS, False),
    ("an empty list matches nothing", {"owner": []}, ROADS, False),
    ("nor beside what matches", {"id": "roads", "tags": []}, ROADS, False),
    ("XYZ's name of a space", {"space": "roads"}, ROADS, True),
    ("XYZ's packages", {"packages": ["base"]}, ROADS, True),
    ("Naksha's name of connectors", {"eventHandlerIds": ["lo*", "db"]}, ROADS, True),
]


@pytest.mark.parametrize(
    ("attribute_map", "resource", "is_granted"),
    [pytest.param(*row, id=name) for name, *row in MAPS],
)
@pytest.mark.parametrize("section", ["naksha", "xyz-hub"])
def test_an_attribute_map(
    section: str, attribute_map: dict[str, Any], resource: Resource, is_granted: bool
) -> None:
    found = rights(section, useSpaces=[attribute_map])
    assert found.allows(Right.USE_SPACES, resource) is is_granted
    assert not found.allows(Right.MANAGE_SPACES, resource)


def test_of_several_maps_one_is_enough() -> None:
    found = rights("naksha", useSpaces=[{"owner": "bob"}, {"id": "roads"}])
    assert found.allows(Right.USE_SPACES, ROADS)
    assert not rights("naksha", useSpaces=[]).allows(Right.USE_SPACES, ROADS)


def test_both_sections_count() -> None:
    found = parse_rights(
        {
            "naksha": {"useSpaces": [{"id": "places"}]},
            "xyz-hub": {"manageSpaces": [{"owner": "ann"}]},
            "another-service": {"deleteFeatures": [{}]},
        }
    )
    assert found.allows(Right.USE_SPACES, resources.space("places"))
    assert found.allows(Right.MANAGE_SPACES, ROADS)
    assert not found.allows(Right.DELETE_FEATURES, MAIN)


# ---- Actions -------------------------------------------------------------------------------------

DB = resources.connector("db", class_name="naksha:Storage", owner="ann")
MAPS_1 = resources.storage("maps-1", class_name="psql")
TO_ROADS = resources.subscription("search", space_id="roads")
ON = {
    Right.READ_FEATURES: MAIN,
    Right.CREATE_FEATURES: MAIN,
    Right.UPDATE_FEATURES: MAIN,
    Right.DELETE_FEATURES: MAIN,
    Right.USE_SPACES: ROADS,
    Right.MANAGE_SPACES: ROADS,
    Right.ADMIN_SPACES: ROADS,
    Right.USE_CONNECTORS: DB,
    Right.MANAGE_CONNECTORS: DB,
    Right.USE_STORAGES: MAPS_1,
    Right.MANAGE_STORAGES: MAPS_1,
    Right.USE_SUBSCRIPTIONS: TO_ROADS,
    Right.MANAGE_SUBSCRIPTIONS: TO_ROADS,
    Right.USE_JOBS: resources.job("night", space_id="roads"),
    Right.MANAGE_JOBS: resources.job("night", space_id="roads"),
    Right.READ_COLLECTIONS: resources.collection("roads", storage_id="maps-1"),
    Right.CREATE_COLLECTIONS: resources.collection("roads", storage_id="maps-1"),
    Right.UPDATE_COLLECTIONS: resources.collection("roads", storage_id="maps-1"),
    Right.DELETE_COLLECTIONS: resources.collection("roads", storage_id="maps-1"),
    Right.USE_CAPABILITIES: resources.capability("hexbinClustering"),
    Right.MANAGE_ROLES: resources.role("editor"),
}
SPACES = {"useSpaces"}
SUBSCRIPTIONS = {"useSubscriptions", "manageSubscriptions"}
GRANTED: list[tuple[str, str, set[str]]] = [
    ("xyz-hub", "readFeatures", {"readFeatures"} | SPACES),
    ("xyz-hub", "createFeatures", {"createFeatures"} | SPACES),
    ("xyz-hub", "updateFeatures", {"updateFeatures"} | SPACES),
    ("xyz-hub", "deleteFeatures", {"deleteFeatures"} | SPACES),
    ("xyz-hub", "manageSpaces", {"manageSpaces"} | SPACES | SUBSCRIPTIONS),
    ("xyz-hub", "adminSpaces", {"adminSpaces"} | SPACES),
    ("xyz-hub", "accessConnectors", {"useConnectors", "useStorages"}),
    ("xyz-hub", "manageConnectors", {"manageConnectors", "useConnectors", "useStorages"}),
    ("xyz-hub", "useCapabilities", {"useCapabilities"}),
    ("naksha", "readFeatures", {"readFeatures"}),
    ("naksha", "createFeatures", {"createFeatures"}),
    ("naksha", "updateFeatures", {"updateFeatures"}),
    ("naksha", "deleteFeatures", {"deleteFeatures"}),
    ("naksha", "useSpaces", {"useSpaces"}),
    ("naksha", "manageSpaces", {"manageSpaces", "adminSpaces", "useSpaces"}),
    ("naksha", "useEventHandlers", {"useConnectors"}),
    ("naksha", "manageEventHandlers", {"manageConnectors", "useConnectors"}),
    ("naksha", "useStorages", {"useStorages"}),
    ("naksha", "manageStorages", {"manageStorages", "useStorages"}),
    ("naksha", "useSubscriptions", {"useSubscriptions"}),
    ("naksha", "manageSubscriptions", SUBSCRIPTIONS),
    ("naksha", "useJobs", {"useJobs"}),
    ("naksha", "manageJobs", {"manageJobs", "useJobs"}),
    ("naksha", "readCollections", {"readCollections"}),
    ("naksha", "createCollections", {"createCollections"}),
    ("naksha", "updateCollections", {"updateCollections"}),
    ("naksha", "deleteCollections", {"deleteCollections"}),
    ("naksha", "useCapabilities", {"useCapabilities"}),
    ("naksha", "manageRoles", {"manageRoles"}),
    ("naksha", "flyToTheMoon", set()),
]


@pytest.mark.parametrize(("section", "action", "granted"), GRANTED)
def test_an_action_grants_its_right_and_implied_rights(
    section: str, action: str, granted: set[str]
) -> None:
    found = rights(section, **{action: [{}]})
    assert {right.value for right in Right if found.allows(right, ON[right])} == granted


def test_the_table_has_every_action() -> None:
    named = {action for _, action, _ in GRANTED} | {"useConnectors"}
    assert named - {"flyToTheMoon"} == set(ACTIONS)


def test_the_id_of_a_feature_is_not_that_of_a_space() -> None:
    found = rights("xyz-hub", readFeatures=[{"id": "roads"}, {"tags": "open"}])
    assert not found.allows(Right.USE_SPACES, ROADS)
    seen = rights("xyz-hub", readFeatures=[{"id": "main"}, {"space": "roads", "owner": "ann"}])
    assert seen.allows(Right.USE_SPACES, ROADS)
    assert not seen.allows(Right.USE_SPACES, resources.space("main", owner="ann"))


def test_features_have_the_owner_of_their_space() -> None:
    found = rights("xyz-hub", readFeatures=[{"owner": "ann", "space": "roads"}])
    assert found.allows(Right.READ_FEATURES, MAIN)
    assert found.allows(Right.READ_FEATURES, IN_ROADS)
    assert not found.allows(Right.READ_FEATURES, resources.feature(resources.features(BARE), "x"))


def test_feature_rights_by_attributes_and_location() -> None:
    found = rights(
        "naksha",
        updateFeatures=[{"storageId": "maps-*", "collectionId": "roads", "author": "bob"}],
    )
    assert found.allows(Right.UPDATE_FEATURES, MAIN)
    assert not found.allows(Right.UPDATE_FEATURES, resources.feature(IN_ROADS, "x", author="eve"))
    assert not found.allows(Right.UPDATE_FEATURES, IN_ROADS)


# ---- What is asked of rights ---------------------------------------------------------------------


def test_a_missing_right_is_named_with_its_resource() -> None:
    with pytest.raises(Forbidden, match=r"readFeatures .* feature 'main' of space 'roads'") as told:
        NO_RIGHTS.check(Right.READ_FEATURES, MAIN)
    assert told.value.right == "readFeatures"
    assert told.value.resource == "feature 'main' of space 'roads'"
    assert "ann" not in str(told.value), "the owner is not the caller's business"
    rights("naksha", readFeatures=[{"id": "main"}]).check(Right.READ_FEATURES, MAIN)


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        (ROADS, "space 'roads'"),
        (IN_ROADS, "features of space 'roads'"),
        (DB, "connector 'db'"),
        (Resource(ResourceKind.STORAGE, {}), "storages"),
        (resources.features(Resource(ResourceKind.SPACE, {})), "features"),
    ],
)
def test_a_resource_has_a_name(resource: Resource, name: str) -> None:
    assert str(resource) == name


def test_lists_are_filtered_by_rights() -> None:
    found = rights("naksha", useSpaces=[{"id": "ro*"}, {"id": "sea"}])
    assert found.filter(
        Right.USE_SPACES, ["roads", "sea", "seas", "rooms", "places"], resources.space
    ) == ["roads", "sea", "rooms"]
    assert found.filter(Right.MANAGE_SPACES, ["roads"], resources.space) == []


def test_all_rights_are_all() -> None:
    assert all(all_rights().allows(right, Resource(ResourceKind.SPACE, {})) for right in Right)
    assert not any(NO_RIGHTS.allows(right, ON[right]) for right in Right)


def test_a_scope_is_everything_nothing_or_some_features() -> None:
    found = rights(
        "naksha",
        readFeatures=[{"storageId": "maps-1", "tags": ["open", "ch*"]}, {"collectionId": "sea"}],
    )
    some = found.scope(Right.READ_FEATURES, IN_ROADS)
    assert not some.is_everything
    assert not some.is_nothing
    assert some.allows({"id": "main", "tags": ["checked", "open"]})
    assert not some.allows({"id": "main", "tags": ["open"]})
    sea = resources.features(ROADS, storage_id="maps-2", collection_id="sea")
    assert found.scope(Right.READ_FEATURES, sea).is_everything
    assert found.scope(Right.READ_FEATURES, resources.features(ROADS)).is_nothing
    assert found.scope(Right.DELETE_FEATURES, IN_ROADS).is_nothing
    assert all_rights().scope(Right.DELETE_FEATURES, IN_ROADS).is_everything


# ---- Roles ---------------------------------------------------------------------------------------

ROLES = {
    "editor": parse_role(
        {
            "naksha": {
                "readFeatures": [{}],
                "useSpaces": [{}],
                "manageSpaces": [{"owner": "ann"}],
            }
        }
    ),
    "viewer": parse_role({"xyz-hub": {"readFeatures": [{"space": "roads"}]}}),
}


def test_a_role_grants_nothing_before_it_is_looked_up() -> None:
    found = rights("naksha", roles=["editor"])
    assert not found.allows(Right.READ_FEATURES, MAIN)
    assert found.resolved(ROLES.get).allows(Right.READ_FEATURES, MAIN)


def test_roles_add_to_direct_grants() -> None:
    found = rights("xyz-hub", deleteFeatures=[{"space": "roads"}], roles=["viewer"])
    found = found.resolved(ROLES.get)
    assert found.allows(Right.DELETE_FEATURES, MAIN)
    assert found.allows(Right.READ_FEATURES, MAIN)
    assert not found.allows(Right.READ_FEATURES, resources.features(BARE))
    assert not found.roles


def test_a_role_in_the_list_of_an_action_grants_that_action_only() -> None:
    found = rights("naksha", manageSpaces=["editor", {"id": "bare"}]).resolved(ROLES.get)
    assert found.allows(Right.MANAGE_SPACES, ROADS)
    assert found.allows(Right.USE_SPACES, ROADS), "it comes along"
    assert found.allows(Right.MANAGE_SPACES, BARE)
    assert not found.allows(Right.USE_SPACES, resources.space("sea")), "no more than it"
    assert not found.allows(Right.READ_FEATURES, MAIN)


def test_a_role_for_features_shows_their_space_in_xyz() -> None:
    found = rights("xyz-hub", readFeatures=["viewer"]).resolved(ROLES.get)
    assert found.allows(Right.USE_SPACES, ROADS)
    assert not found.allows(Right.USE_SPACES, BARE)


def test_an_unknown_role_grants_nothing() -> None:
    found = rights("naksha", roles=["ghost"], readFeatures=["ghost"]).resolved(ROLES.get)
    assert not any(found.allows(right, ON[right]) for right in Right)


def test_a_role_is_looked_up_once_and_only_if_there_is_one() -> None:
    asked: list[str] = []

    def look_up(name: str) -> Rights | None:
        asked.append(name)
        return ROLES[name]

    plain = rights("naksha", useSpaces=[{}])
    assert plain.resolved(look_up) is plain
    rights("naksha", roles=["editor", "viewer"], useSpaces=["editor"]).resolved(look_up)
    assert sorted(asked) == ["editor", "viewer"]


def test_a_role_names_no_roles() -> None:
    with pytest.raises(InvalidArgument, match="other roles"):
        parse_role({"naksha": {"roles": ["editor"]}})
    with pytest.raises(InvalidArgument, match="other roles"):
        parse_role({"naksha": {"useSpaces": ["editor"]}})


# ---- Bad matrices --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("matrix", "field"),
    [
        ([], "urm"),
        ("all", "urm"),
        ({"naksha": None}, "urm.naksha"),
        ({"xyz-hub": ["readFeatures"]}, "urm.xyz-hub"),
        ({"naksha": {"useSpaces": {}}}, "urm.naksha.useSpaces"),
        ({"naksha": {"useSpaces": None}}, "urm.naksha.useSpaces"),
        ({"naksha": {"useSpaces": [{}, None]}}, "urm.naksha.useSpaces[1]"),
        ({"naksha": {"useSpaces": [["editor"]]}}, "urm.naksha.useSpaces[0]"),
        ({"naksha": {"useSpaces": [{"id": None}]}}, "urm.naksha.useSpaces[0].id"),
        ({"naksha": {"useSpaces": [{"id": True}]}}, "urm.naksha.useSpaces[0].id"),
        ({"naksha": {"useSpaces": [{"id": {"a": "b"}}]}}, "urm.naksha.useSpaces[0].id"),
        ({"naksha": {"useSpaces": [{"id": ["a", 1]}]}}, "urm.naksha.useSpaces[0].id"),
        ({"naksha": {"roles": "editor"}}, "urm.naksha.roles"),
        ({"naksha": {"roles": [{}]}}, "urm.naksha.roles"),
    ],
)
def test_a_matrix_that_is_none_is_refused_with_the_place(matrix: object, field: str) -> None:
    with pytest.raises(InvalidArgument) as told:
        parse_rights(matrix)
    assert told.value.field == field


def test_without_a_matrix_there_are_no_rights() -> None:
    assert parse_rights(None) == NO_RIGHTS
    assert parse_rights({}) == NO_RIGHTS


def test_rights_cannot_be_changed() -> None:
    found = rights("naksha", useSpaces=[{"id": "roads"}])
    with pytest.raises(AttributeError):
        setattr(found, "grants", {})  # noqa: B010 - the type checker sees it too
    assert isinstance(found.grants, MappingProxyType)
    assert isinstance(all_rights().grants, MappingProxyType)


# ---- For any matrix ------------------------------------------------------------------------------

NAMES = st.sampled_from(["id", "owner", "tags", "spaceId", "colour"])
TEXTS = st.sampled_from(["", "a", "b", "ab", "*", "a*", "ab*", "a*b"])
ATTRIBUTE_MAPS = st.dictionaries(NAMES, TEXTS | st.lists(TEXTS, max_size=3), max_size=4)
RESOURCES = st.builds(
    Resource,
    st.just(ResourceKind.SPACE),
    st.dictionaries(NAMES, TEXTS | st.lists(TEXTS, max_size=3) | st.none(), max_size=5),
)


@given(ATTRIBUTE_MAPS, NAMES, TEXTS | st.lists(TEXTS, max_size=3), RESOURCES)
def test_an_attribute_more_never_grants_more(
    attribute_map: dict[str, Any], name: str, value: Any, resource: Resource
) -> None:
    narrower = {name: value, **attribute_map}
    if rights("naksha", useSpaces=[narrower]).allows(Right.USE_SPACES, resource):
        assert rights("naksha", useSpaces=[attribute_map]).allows(Right.USE_SPACES, resource)


@given(st.lists(ATTRIBUTE_MAPS, max_size=4), RESOURCES)
def test_maps_are_alternatives(maps: list[dict[str, Any]], resource: Resource) -> None:
    each = [rights("naksha", useSpaces=[one]).allows(Right.USE_SPACES, resource) for one in maps]
    assert rights("naksha", useSpaces=maps).allows(Right.USE_SPACES, resource) is any(each)


@given(ATTRIBUTE_MAPS, RESOURCES)
def test_attribute_maps_match_as_documented(
    attribute_map: dict[str, Any], resource: Resource
) -> None:
    """The same rules, written down once more and as plainly as possible."""

    def has(name: str, wanted: str) -> bool:
        found = resource.attributes.get(name)
        values = [found] if isinstance(found, str) else list(found or [])
        return any(
            value == wanted or (wanted.endswith("*") and value.startswith(wanted[:-1]))
            for value in values
        )

    expected = all(
        has(name, value)
        if isinstance(value, str)
        else value != [] and all(has(name, one) for one in value)
        for name, value in attribute_map.items()
    )
    found = rights("naksha", useSpaces=[attribute_map])
    assert found.allows(Right.USE_SPACES, resource) is expected


@given(st.lists(ATTRIBUTE_MAPS, max_size=3), RESOURCES)
def test_a_scope_decides_as_the_rights_do(maps: list[dict[str, Any]], whole: Resource) -> None:
    own = {"id", "tags"}
    known = {name: value for name, value in whole.attributes.items() if name not in own}
    found = rights("naksha", readFeatures=maps)
    scope = found.scope(Right.READ_FEATURES, Resource(ResourceKind.FEATURE, known))
    feature = {name: value for name, value in whole.attributes.items() if name in own}
    assert scope.allows(feature) is found.allows(Right.READ_FEATURES, whole)


def test_a_decision_takes_microseconds() -> None:
    maps: list[Any] = [{"id": f"space-{n}", "owner": "ann"} for n in range(10)]
    found = rights("xyz-hub", readFeatures=[*maps, {"space": "roads", "owner": "ann"}])
    assert found.allows(Right.READ_FEATURES, IN_ROADS)
    best = min(
        timeit.repeat(lambda: found.allows(Right.READ_FEATURES, IN_ROADS), number=1_000, repeat=20)
    )
    assert best / 1_000 < 50e-6
