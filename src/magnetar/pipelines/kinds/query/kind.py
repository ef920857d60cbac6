"""The kind `query`: topics -> SQL over their rows -> a topic, exactly once.

    {"source": {"subscribe": "orders"},
     "sql": "select key, value from source where length(value) > 10",
     "sink": {"topic": "big"}}

`source` and `sink` are options of the data source `magnetar` for reading and writing.  The SQL sees the rows of
`source` as a view of that name, and may only be a query over it (`confined.py`).  There are also `trigger` (`1
second`) and `output_mode` (`append`).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from magnetar.base.errors import ConfigError
from magnetar.pipelines.kinds.config_values import check_keys, options_at, text_at, trigger_at
from magnetar.pipelines.kinds.kind import NOT_DECLARED, Context, Spec
from magnetar.pipelines.kinds.query.confined import check_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FORMAT: Final = "magnetar"
VIEW: Final = "source"
OUTPUT_MODES: Final = ("append", "update", "complete")
_KEYS: Final = {"source": True, "sql": True, "sink": True, "trigger": False, "output_mode": False}
_WORKERS: Final = {
    "checkpointlocation": "the worker keeps the checkpoint",
    "predefinedsubscription": "the worker keeps the pipeline's place in a subscription of its own",
    **NOT_DECLARED,
}


class QueryKind:
    name = "query"
    reads_slices = False

    def validate(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        check_keys(config, _KEYS)
        mode = text_at(config, "output_mode", OUTPUT_MODES[0])
        if mode not in OUTPUT_MODES:
            raise ConfigError(f"output_mode must be one of {', '.join(OUTPUT_MODES)}, not {mode[:100]!r}")
        return {
            "source": options_at(config, "source", _WORKERS),
            "sql": text_at(config, "sql"),
            "sink": options_at(config, "sink", _WORKERS),
            "trigger": trigger_at(config),
            "output_mode": mode,
        }

    def start(
        self, spark: "SparkSession", spec: Spec, checkpoint_dir: str, context: Context
    ) -> "StreamingQuery":
        config = spec.config
        rows = (
            spark.readStream.format(FORMAT).options(**context.source_options(spec, config["source"])).load()
        )
        rows.createOrReplaceTempView(VIEW)
        check_query(spark, config["sql"], VIEW)
        result = spark.sql(config["sql"])
        if not result.isStreaming:
            raise ConfigError(f"sql must read from {VIEW}: there is nothing that could stream in its result")
        return (
            result.writeStream.format(FORMAT)
            .queryName(spec.name)
            .outputMode(config["output_mode"])
            .options(**context.sink_options(spec, config["sink"]))
            .option("checkpointLocation", checkpoint_dir)
            .trigger(processingTime=config["trigger"])
            .start()
        )
