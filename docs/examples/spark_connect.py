"""Topics through a Spark Connect server: this process has no JVM (docs/operating/spark-connect.md).

    python spark_connect.py sc://127.0.0.1:15002 http://127.0.0.1:8080 127.0.0.1:9092 orders totals

reads the topic `orders`, whose values are numbers, and writes one record for each key to the topic `totals`.
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f


def totals(orders: DataFrame) -> DataFrame:
    """One record for each key: how many numbers there are, and their sum."""
    amount = f.col("value").cast("string").cast("bigint")
    summed = orders.groupBy("key").agg(f.count("*").alias("orders"), f.sum(amount).alias("total"))
    return summed.select("key", f.to_json(f.struct("orders", "total")).alias("value"))


def main(remote: str, url: str, bootstrap: str, source: str, target: str) -> None:
    spark = SparkSession.builder.remote(remote).getOrCreate()
    server = {"admin.url": url, "kafka.bootstrap.servers": bootstrap}
    orders = spark.read.format("magnetar").options(**server).option("subscribe", source).load()
    print(orders.count(), "records in", source)
    totals(orders).write.format("magnetar").options(**server).option("topic", target).mode("append").save()

    written = spark.read.format("magnetar").options(**server).option("subscribe", target).load()
    for row in written.select(written.key.cast("string"), written.value.cast("string")).sort("key").collect():
        print(row.key, row.value)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
