"""Storage locations as they are passed from process to process."""

from __future__ import annotations

import pickle
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest

from naksha.spark.source.options import StorageRef
from naksha.spi.locations import path_of


@pytest.mark.parametrize("name", ["plain", "a b", "C#", "a%20b", "a?b", "größer"])
def test_a_file_stays_the_same_wherever_its_place_goes(tmp_path: Path, name: str) -> None:
    file = tmp_path / name / "town.naksha"
    place = StorageRef(f"file:{quote(str(file))}")
    assert path_of(place.location) == file
    assert StorageRef(place.location) == place
    assert pickle.loads(pickle.dumps(place)) == place
    assert msgspec.json.decode(msgspec.json.encode(place), type=StorageRef) == place


def test_a_file_is_looked_for_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert path_of(StorageRef("file:town.naksha").location) == tmp_path / "town.naksha"
