"""The kind `replicator`: a topic -> a target outside, by the provider of the target's type.

    {"topic": "persistent://public/default/orders", "type": "Kafka", "region": "us-west1", "target": "orders",
     "properties": {"bootstrap.servers": "kafka:9092"}}

docs/reference/replicators.md says what a replicator guarantees.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from magnetar.client.login import Server
from magnetar.client.standing_consumer import StandingConsumer
from magnetar.pipelines.kinds.kind import Context, Query, Spec
from magnetar.pipelines.kinds.replicator.config import ReplicatorConfig, checked
from magnetar.replicators.naming import KIND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ReplicatorKind:
    name = KIND
    reads_slices = True

    def validate(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        return checked(config)

    def start(self, spark: "SparkSession", spec: Spec, checkpoint_dir: str, context: Context) -> Query:
        from magnetar.pipelines.kinds.replicator.sink import FILE, NAME, ReplicatorSink

        values = spec.config
        config = ReplicatorConfig(
            spec.name,
            spec.id,
            values,
            context.admin_url,
            context.bootstrap_servers,
            context.server_context,
            spec.subscription,
        )
        config.write(context.private_file)
        spark.dataSource.register(ReplicatorSink)
        source = {
            "subscribe": values["topic"],
            "maxOffsetsPerTrigger": str(values["records_per_batch"]),
            "descriptors": "true",
            "replicatorRate": "true",
        }
        query = (
            spark.readStream.format("magnetar")
            .options(**context.source_options(spec, source))
            .load()
            .writeStream.format(NAME)
            .queryName(spec.name)
            .option(FILE, str(context.private_file))
            .option("checkpointLocation", checkpoint_dir)
            .trigger(processingTime=values["trigger"])
            .start()
        )
        login = Server(context.admin_url, context.server_context).login()
        consumer = StandingConsumer(
            context.admin_url, login, values["topic"], spec.subscription, f"replicator-{spec.name}"
        )
        return _Attended(query, consumer)


class _Attended:
    """A query with the consumer that stands on its subscription."""

    def __init__(self, query: Query, consumer: StandingConsumer) -> None:
        self._query = query
        self._consumer = consumer

    @property
    def isActive(self) -> bool:
        return self._query.isActive

    def exception(self) -> Exception | None:
        return self._query.exception()

    def stop(self) -> None:
        try:
            self._query.stop()
        finally:
            self._consumer.close()
