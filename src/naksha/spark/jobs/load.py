"""The job `load`: files of any kind become features of a collection, by one transaction."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionNotFound, InvalidArgument, LimitExceeded
from naksha.model.names import check_app_id, check_author, check_collection_id
from naksha.spark.jobs.frame import Progress
from naksha.spark.jobs.loading import geojson, history, tables
from naksha.spark.jobs.loading.files import Piece, files_of, format_of, pieces_of
from naksha.spark.jobs.loading.mapping import mapped_features, records_of_table
from naksha.spark.jobs.loading.spec import Format, Load, Loaded
from naksha.spark.jobs.loading.staging import OUTCOME_ROWS, Staging, parts_of
from naksha.spark.jobs.watching import watched
from naksha.spark.opened import Opened, opened
from naksha.spark.options import Place
from naksha.spi.staging import StagedWrite
from naksha.spi.storage import Storage


def load(spark: SparkSession, spec: Load, progress: Progress) -> Loaded:
    """Load files into a collection; see `Load`."""
    check_collection_id(spec.collection, field="collection")
    check_app_id(spec.app_id)
    check_author(spec.author)
    files = files_of(spec)
    storage = opened(spec.place)
    if spec.history:
        return history.load_history(spark, storage, spec, files, progress)
    records, crs = _records(spark, spec, files)
    info = storage.call(lambda s: _collection(s, spec.collection))
    staging = Staging(spec.place, spec.job or uuid.uuid4().hex, info, spec.mapping.crs or crs)
    try:
        return _load(spark, storage, spec, staging, records, progress)
    except BaseException:
        storage.call(lambda s: s.drop_staged(staging.job))
        raise
