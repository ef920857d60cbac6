"""A query topic -> topic on Spark, as a user writes it.

    python -m tests.crash.spark.spark_query BOOTSTRAP HTTP_URL SOURCE SINK PARTITIONS CHECKPOINT

Says `{"batch": N}` for each batch that is committed.
"""

import json
import sys

from magnetar.pipelines.spark import session


def main() -> None:
    bootstrap, http_url, source_topic, sink_topic, _, checkpoint = sys.argv[1:]
    spark = session.start("kills", master="local[2]")
    query = (
        spark.readStream.format("magnetar")
        .option("admin.url", http_url)
        .option("subscribe", source_topic)
        .option("startingOffsets", "earliest")
        .schema("value binary, partition int")
        .load()
        .writeStream.format("magnetar")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", sink_topic)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    said = -1
    while not query.awaitTermination(1):
        progress = query.lastProgress
        if progress is not None and progress.batchId > said:
            said = progress.batchId
            print(json.dumps({"batch": said}), flush=True)


if __name__ == "__main__":
    main()
