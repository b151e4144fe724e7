"""On a real cluster: executors have nothing but what is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from naksha.model.query import Query, States
from naksha.testing.spark_cluster import SparkCluster
from tests.spark.conftest import TownMaker
from tests.spark.towns import fill

SECONDS_MAX = 300
ROOT = Path(__file__).resolve().parents[2]


def test_both_storages_are_read_on_a_cluster(
    spark_cluster: SparkCluster, town_maker: TownMaker, tmp_path: Path
) -> None:
    with town_maker("file") as one, town_maker("postgresql") as other:
        places = {town.location: town for town in (one, other)}
        for town in places.values():
            town.call(fill)
        command = [sys.executable, "-m", "tests.spark.cluster_driver", spark_cluster.master]
        done = subprocess.run(
            [*command, str(tmp_path), *places],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout.splitlines()[-1])
        assert answer["here"] not in answer["there"]
        for location, told in answer["told"].items():
            town = places[location]
            for ref in ("HEAD", "fix"):
                states = town.states(Query(), ref)
                wanted = sorted(s.uuid for s in states if s.xyz["author"] != "bob")
                assert told[ref] == wanted
                assert wanted
            every = town.states(Query(states=States.ALL))
            assert told["changes"] == sorted(state.uuid for state in every)
