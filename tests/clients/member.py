"""One member of a consumer group in a process of its own, so that it can be killed.

    python member.py BOOTSTRAP TOPIC GROUP SESSION_TIMEOUT_MS

Writes one line of JSON to standard output for each thing that has happened: `{"assigned": [0, 1]}` when
the group gave it partitions, `{"read": [partition, offset]}` when the commit behind that record was
acknowledged.  It goes on until it is killed.
"""

import json
import sys
from typing import Any

import confluent_kafka


def say(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def main(bootstrap: str, topic: str, group: str, session_timeout_ms: str) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": int(session_timeout_ms),
            "heartbeat.interval.ms": int(session_timeout_ms) // 5,
        }
    )
    consumer.subscribe(
        [topic], on_assign=lambda _, given: say(assigned=sorted(each.partition for each in given))
    )
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
