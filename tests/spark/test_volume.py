"""`volume.py` with fewer records; how to run all of them stands there."""

from typing import TYPE_CHECKING

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.spark import volume
from tests.spark.writers import Writers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(400)]


@pytest.mark.parametrize(("count", "size"), [(60_000, volume.SMALL_BYTES), (10_000, volume.LARGE_BYTES)])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_counts_and_checksums(
    count: int, size: int, compression: str, spark: "SparkSession", server: MagnetarProcess, writers: Writers
) -> None:
    topic = writers.create(f"volume-{size}-{compression}", volume.PARTITIONS)
    written = volume.write(server, topic, count, size, compression)
    volume.check(spark, server, topic, written)
