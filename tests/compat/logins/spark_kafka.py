"""Spark's own Kafka connector logs in: one session, a row written and read again with each login.

    spark-kafka python spark_kafka.py LOGINS [PART_OF_AN_ID...]      (a peer script, which says where the jars are)

One line for each login: `SEEN spark-kafka::mechanism::case seconds what`.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

Login = dict[str, str]
CLIENT: Final = "spark-kafka"
LET_IN: Final = "let in"
UNSUPPORTED: Final = {"delegation-token"}  # Spark asks for one by itself, and only with Kerberos
_SECURITY: Final = "org.apache.kafka.common.security."


def options(login: Login) -> dict[str, str]:
    found = {
        "bootstrap.servers": login["address"],
        "security.protocol": login["protocol"],
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": login["ca"],
    }
    if "both" in login:
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": login["both"]}
    if "sasl" in login:
        found |= {"sasl.mechanism": login["sasl"], "sasl.jaas.config": _jaas(login)}
    if "token_url" in login:
        found |= {
            "sasl.oauthbearer.token.endpoint.url": login["token_url"],
            "sasl.login.callback.handler.class": f"{_SECURITY}oauthbearer.OAuthBearerLoginCallbackHandler",
        }
    return {f"kafka.{name}": value for name, value in found.items()}


def _jaas(login: Login) -> str:
    if "token_url" in login:
        shown = f'clientId="{login["client_id"]}" clientSecret="{login["client_secret"]}"'
        return f"{_SECURITY}oauthbearer.OAuthBearerLoginModule required {shown};"
    module = "plain.PlainLoginModule" if login["sasl"] == "PLAIN" else "scram.ScramLoginModule"
    return f'{_SECURITY}{module} required username="{login["user"]}" password="{login["password"]}";'


def attempt(spark: SparkSession, login: Login, value: str) -> str:
    settings = options(login)
    reading = {**settings, "subscribe": login["topic"], "fetchOffset.numRetries": "0"}
    try:
        if login["case"] == "right":  # the connector tries in each task: a minute for a wrong one
            row = spark.createDataFrame([(value,)], "value string")
            row.write.format("kafka").options(**settings).option("topic", login["topic"]).save()
        table = spark.read.format("kafka").options(**reading).load()
        return LET_IN if table.where(f"CAST(value AS STRING) = '{value}'").count() == 1 else "nothing to read"
    except (Py4JJavaError, PySparkException) as error:
        return root_of(error)


def root_of(error: Any) -> str:
    """The class of the error of Java's that all others have come of."""
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while cause is not None and cause.getCause() is not None:
        cause = cause.getCause()
    return type(error).__name__ if cause is None else str(cause.getClass().getSimpleName())


def main(file: str, *words: str) -> None:
    logins: list[Login] = json.loads(Path(file).read_text())["kafka"]
    urls = ",".join({one["token_url"] for one in logins if "token_url" in one})
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", os.environ["SPARK_KAFKA_JARS"])
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}")
        .getOrCreate()
    )
    for login in logins:
        test_id = f"{CLIENT}::{login['mechanism']}::{login['case']}"
        if login["mechanism"] in UNSUPPORTED or (words and not any(word in test_id for word in words)):
            continue
        began = time.monotonic()
        what = attempt(spark, login, f"{test_id} {began}")
        print(f"SEEN {test_id} {time.monotonic() - began:.1f} {what}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
