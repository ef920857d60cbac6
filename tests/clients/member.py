"""One member of a consumer group in a process of its own, so that it can be killed.

    python member.py BOOTSTRAP TOPIC GROUP SESSION_TIMEOUT_MS PROTOCOL ASSIGNOR

Writes one line of JSON to standard output for each thing that has happened: `{"assigned": [0, 1]}` when
the group gave it partitions or took some, `{"read": [partition, offset]}` when the commit behind that record was
acknowledged.  It goes on until it is killed.  The time-out of a member of the consumer protocol is the server's.
"""

import json
import sys
from typing import Any

import confluent_kafka


def say(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def main(
    bootstrap: str, topic: str, group: str, session_timeout_ms: str, protocol: str, assignor: str
) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if protocol == "classic":
        settings["session.timeout.ms"] = int(session_timeout_ms)
        settings["partition.assignment.strategy"] = assignor
        settings["heartbeat.interval.ms"] = int(session_timeout_ms) // 5
    consumer = confluent_kafka.Consumer(settings)
    owned: set[int] = (
        set()
    )  # partitions are given one by one by the consumer protocol, all at once by the classic one

    def given(_: Any, partitions: list[Any]) -> None:
        owned.update(each.partition for each in partitions)
        say(assigned=sorted(owned))

    def taken(_: Any, partitions: list[Any]) -> None:
        owned.difference_update(each.partition for each in partitions)
        say(assigned=sorted(owned))

    consumer.subscribe([topic], on_assign=given, on_revoke=taken)
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            say(error=str(message.error()))
            continue
        consumer.commit(message=message, asynchronous=False)
        say(read=[message.partition(), message.offset()])


if __name__ == "__main__":
    main(*sys.argv[1:])
