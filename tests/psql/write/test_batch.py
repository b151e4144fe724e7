"""Parameters of a large write."""

from __future__ import annotations

from naksha.model.features import check_features
from naksha.psql.write.batch import write_values
from naksha.spi.support.write_input import IdBatch, WriteBatch
from naksha.testing.storage.suite_support import point


def test_columns_without_values_are_sent_as_null() -> None:
    prepared = check_features([point("a"), point("b")])
    put = WriteBatch("create", prepared, [None, None], [None, None])
    _, _, ids, locks, contents, _, _, _, crids, muuids, *_ = write_values(
        [put, IdBatch("delete", ["c"], [7])], 1, returning=False
    )
    assert sorted(ids) == ["a", "b", "c"]
    assert locks == [None, None, 7]
    assert contents[2] is None
    assert crids is None
    assert muuids is None
