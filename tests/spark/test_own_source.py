"""Each pipeline has a data source of its own, so what breaks the one that Spark shares breaks no pipeline."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from magnetar.pipelines.spark.session import activate
from magnetar.pipelines.worker.queries import own_session
from magnetar.testing.server import MagnetarProcess
from tests.spark.test_sink import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(400)]


def environment(session: "SparkSession") -> Any:
    """The JVM's map of variables for the Python processes of the source `magnetar`, as a session finds it."""
    manager = session._jsparkSession.sessionState().dataSourceManager()
    return manager.lookupDataSource("magnetar").dataSourceCls().envVars()


@contextmanager
def miscounted(environment: Any) -> Iterator[None]:
    """The map as two queries leave it that start at the same time: with a count that is not that of its entries."""
    underlying = environment.getClass().getDeclaredField("underlying")
    underlying.setAccessible(True)
    found = underlying.get(environment)
    size = found.getClass().getDeclaredField("contentSize")
    size.setAccessible(True)
    count = size.getInt(found)
    size.setInt(found, count + 1)
    try:
        yield
    finally:
        size.setInt(found, count)


def rows(session: "SparkSession") -> "DataFrame":
    """One row; the session is the active one afterwards."""
    activate(session)
    return session.sql("select cast('v' as binary) as value")


def test_no_two_pipelines_have_the_same_object_for_their_source(spark: "SparkSession") -> None:
    jvm: Any = spark._jvm
    identity = jvm.java.lang.System.identityHashCode
    shared = [identity(environment(spark.newSession())) for _ in range(2)]
    assert shared[0] == shared[1], "Spark's own is one for all"
    own = [identity(environment(own_session(spark))) for _ in range(2)]
    assert len({shared[0], *own}) == 3


def test_a_pipeline_writes_when_the_source_that_all_sessions_share_is_broken(
    spark: "SparkSession", server: MagnetarProcess, topic: Callable[[], str]
) -> None:
    name = topic()
    with miscounted(environment(spark)):
        with pytest.raises(Exception, match="Task not serializable"):
            write(rows(spark.newSession()), server, topic=name)
        write(rows(own_session(spark)), server, topic=name)
