"""Keys and validators of tiles."""

from naksha.hub.tiles.tile_basis import TileBasis
from naksha.hub.tiles.tile_key import TileVersion, known_versions, tile_key, validator_of
from naksha.model import limits

BASIS = TileBasis(("roads", "abc"))


def test_each_part_changes_the_key() -> None:
    keys = {
        tile_key(BASIS, ("1/0/0", "limit=5")),
        tile_key(BASIS, ("1/0/0", "limit=6")),
        tile_key(BASIS, ("1/0/1", "limit=5")),
        tile_key(BASIS, ("1/0/0limit=5",)),
        tile_key(TileBasis(("roads", "abd")), ("1/0/0", "limit=5")),
        tile_key(TileBasis(("roads", "abc", "1/0/0")), ("limit=5",)),
    }
    assert len(keys) == 6
    assert tile_key(BASIS, ("1/0/0",)) == tile_key(BASIS._replace(is_lasting=True), ("1/0/0",))


def test_a_validator_is_read_back() -> None:
    key = tile_key(BASIS, ())
    other = tile_key(BASIS, ("x",))
    for version in (TileVersion((7,)), TileVersion((7, 8)), TileVersion()):
        tag = validator_of(key, version)
        assert tag.startswith('W/"')
        assert known_versions(key, tag) == [version]
        assert known_versions(key, tag.removeprefix("W/")) == [version]
        assert known_versions(key, f'"x", {tag}, W/"y"') == [version]
        assert known_versions(other, tag) == []
    for wrong in (None, "", "*", f'"{key}-"', f'"{key}-1..2"', f"{key}-1", f'"{key}-{"9" * 300}"'):
        assert known_versions(key, wrong) == []


def test_a_request_can_name_a_few_versions_only() -> None:
    key = tile_key(BASIS, ())
    given = [TileVersion((number,)) for number in range(1, 1000)]
    header = ", ".join(validator_of(key, version) for version in given)
    assert known_versions(key, header) == given[: limits.TILE_TAGS_MAX]


def test_versions_are_compared_by_storage() -> None:
    earlier, later, mixed = TileVersion((1, 5)), TileVersion((2, 5)), TileVersion((3, 4))
    assert later.unless_before(earlier) is later
    assert earlier.unless_before(later) is later
    assert mixed.unless_before(later) is later
