"""Clients of both protocols at once, and topics that are deleted and made again, in a process of its own (child.py).

    python -m tests.crash.server.lives_load BOOTSTRAP PULSAR_URL HTTP_URL SEED [MARKS]

One thread for each topic of `lives.TOPICS`, which goes through *lives*: it is made, written to, a position in it is
stored, it is deleted, and made again under the same name.  Payloads say which life they are of.  Nothing is given up:
what fails because the server is away is done again, so a load that was paused knows how everything ended.  Events
(with MARKS, they are also appended to that file, as marks of `tests.crash.power.trace`):

    {"life": [topic, life, "creating" | "created" | "deleting" | "deleted"]}
    {"sent": [topic, life, partition, count]}         so many records are on their way or were
    {"acked": [topic, life, partition, count]}        and so many are acknowledged, all those before it too
    {"transaction": [topic, life, id, state, records]}  "open", "committing", "committed", "aborting", "aborted";
                                                      records: [[partition, number], ...]
    {"wanted": [topic, life, partition, position]}    a position is about to be stored
    {"stored": [topic, life, partition, position]}    and it is
"""

import contextlib
import faulthandler
import http.client
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Queue
from typing import Any
from urllib.parse import urlsplit

import confluent_kafka
import pulsar
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.crash.server import child
from tests.crash.server.lives import (
    COMPACTED,
    COMPACTED_TRANSACTIONAL,
    IDEMPOTENT,
    PARTITIONS,
    PULSAR,
    TOMBSTONE_HEADER,
    TRANSACTIONAL,
    is_tombstone,
    key_of,
    topic_path,
)
from tests.crash.server.lives_topic import BURST_MAX, REQUEST_TIMEOUT_S, RETRY_S, Topic, mark_events_in, say
from tests.integration.server.wire import Wire

HANGS_S = 60
COORDINATOR_TIMEOUT_S = 3.0
KAFKA: dict[str, Any] = {
    "log_level": 0,  # that the server goes away is the point, not news
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "socket.timeout.ms": 10_000,
}
PRODUCER: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 2,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
}


class KafkaTopic(Topic):
    def __init__(self, name: str, bootstrap: str, seed: int) -> None:
        super().__init__(name, bootstrap, seed)
        self.is_compacted = name in COMPACTED + COMPACTED_TRANSACTIONAL
        self.admin = AdminClient({**KAFKA, "bootstrap.servers": bootstrap})
        self.position = 0

    def create(self) -> None:
        # Small segments, so that ledgers roll.
        config = {"segment.bytes": str(1 << 20)}
        if self.is_compacted:
            config |= {
                "cleanup.policy": "compact",
                "segment.ms": "50",
                "min.cleanable.dirty.ratio": "0",
                "delete.retention.ms": "300",
            }
        new = NewTopic(self.topic, PARTITIONS, 1, config=config)
        self._ask(
            lambda: self.admin.create_topics([new], request_timeout=REQUEST_TIMEOUT_S)[self.topic].result(),
            confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS,
        )

    def delete(self) -> None:
        self._ask(
            lambda: self.admin.delete_topics([self.topic], request_timeout=REQUEST_TIMEOUT_S)[
                self.topic
            ].result(),
            confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
        )

    def record(self, partition: int, number: int) -> dict[str, Any]:
        """The arguments of `produce`."""
        value = self.payload(partition, number)
        if not self.is_compacted:
            return {"value": value, "partition": partition}
        keyed = {"key": key_of(number), "partition": partition}
        if self.topic in COMPACTED and is_tombstone(number):
            return {**keyed, "value": None, "headers": {TOMBSTONE_HEADER: value}}
        return {**keyed, "value": value}

    def store_position(self) -> None:
        partition = self.choose.randrange(PARTITIONS)
        self.position += 1
        say(wanted=[self.topic, self.life, partition, self.position])
        wanted = OffsetCommitRequestPartition(partition, committed_offset=self.position)
        request = OffsetCommitRequest(
            f"group-{self.topic}", topics=[OffsetCommitRequestTopic(self.topic, partitions=[wanted])]
        )

        def commit() -> None:
            # Not by librdkafka: it may wait for a coordinator for ever, or fail an assertion, when that was killed.
            with Wire(int(self.bootstrap.rpartition(":")[2])) as wire:
                code = wire.ask("offset_commit", 8, request).topics[0].partitions[0].error_code
            if code:
                raise OSError(f"a commit was answered with {code}")

        self._ask(commit)
        say(stored=[self.topic, self.life, partition, self.position])

    def _ask(self, ask: Callable[[], object], *fine: int) -> None:
        """Until it is done; `fine` is what the second try says when the first was done but not answered."""
        tried = False
        while True:
            try:
                ask()
                return
            except KafkaException as error:
                if tried and error.args[0].code() in fine:
                    return
            except (OSError, struct.error):
                pass
            tried = True
            time.sleep(RETRY_S)  # until the server is back


class Idempotent(KafkaTopic):
    def begin(self) -> None:
        self._counts = [0] * PARTITIONS
        settings = {**KAFKA, **PRODUCER, "bootstrap.servers": self.bootstrap, "message.timeout.ms": 0}
        self._producer = confluent_kafka.Producer({**settings, "error_cb": self._on_error})

    def step(self) -> None:
        if self.choose.random() < 0.2:
            self.store_position()
        else:
            self.write()

    def write(self) -> None:
        failures: list[object] = []
        touched = set()
        for _ in range(self.choose.randrange(1, BURST_MAX)):
            partition = self.choose.randrange(PARTITIONS)
            number = self._counts[partition]
            self._counts[partition] += 1
            touched.add(partition)
            say(sent=[self.topic, self.life, partition, number + 1])

            def delivered(error: Any, message: Any, number: int = number) -> None:
                if error is not None or message.offset() != number:
                    failures.append(error or f"record {number} has offset {message.offset()}")

            self._producer.produce(self.topic, **self.record(partition, number), on_delivery=delivered)
        while self._producer.flush(1.0):
            pass
        if failures:
            say(broken=f"{self.topic}: {failures[0]}")
        for partition in touched:
            say(acked=[self.topic, self.life, partition, self._counts[partition]])

    def end(self) -> None:
        del self._producer

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            say(broken=f"fatal error of the producer of {self.topic}: {error}")


class Transactional(KafkaTopic):
    def __init__(self, name: str, bootstrap: str, seed: int) -> None:
        super().__init__(name, bootstrap, seed)
        self._transaction = 0
        # Of a member of no group; only its metadata is used.
        settings = {"bootstrap.servers": bootstrap, "group.id": f"group-{name}"}
        self._consumer = confluent_kafka.Consumer({**KAFKA, **settings})

    def begin(self) -> None:
        self._numbers = [0] * PARTITIONS
        self._connect_producer()

    def end(self) -> None:
        del self._producer

    def _connect_producer(self) -> None:
        settings = {"transactional.id": f"transactions-{self.topic}", "transaction.timeout.ms": 60_000}
        while True:
            self._producer = confluent_kafka.Producer(
                {**KAFKA, **PRODUCER, **settings, "bootstrap.servers": self.bootstrap}
            )
            try:
                self._producer.init_transactions(REQUEST_TIMEOUT_S)
                return
            except KafkaException:
                time.sleep(RETRY_S)  # until the server is back

    def step(self) -> None:
        self.write()

    def write(self) -> None:
        self._transaction += 1
        records: list[list[int]] = []
        wanted: list[int] | None = None
        try:
            self._producer.begin_transaction()
            for _ in range(self.choose.randrange(1, BURST_MAX)):
                partition = self.choose.randrange(PARTITIONS)
                records.append([partition, self._numbers[partition]])
                self._numbers[partition] += 1
            self._say("open", records)
            for partition, number in records:
                self._producer.produce(self.topic, **self.record(partition, number))
            if self.choose.random() < 0.5:
                self.position += 1
                partition = self.choose.randrange(PARTITIONS)
                wanted = [partition, self.position]
                self._send_position(TopicPartition(self.topic, partition, self.position))
            if self.choose.random() < 0.5:
                self._producer.flush(REQUEST_TIMEOUT_S)
            if self.choose.random() < 0.3:
                self._say("aborting", records)
                self._again(self._producer.abort_transaction)
                self._say("aborted", records)
                return
            if wanted is not None:
                say(wanted=[self.topic, self.life, *wanted])
            self._say("committing", records)
            self._again(self._producer.commit_transaction)
            self._say("committed", records)
            if wanted is not None:
                say(stored=[self.topic, self.life, *wanted])
        except (KafkaException, TimeoutError):
            self._connect_producer()  # which completes, or aborts, what was open

    def _send_position(self, where: TopicPartition) -> None:
        """librdkafka may wait here for ever, whatever its timeout, when the connection to the coordinator was cut."""
        producer, metadata = self._producer, self._consumer.consumer_group_metadata()
        result: Queue[KafkaException | None] = Queue()

        def send() -> None:
            try:
                producer.send_offsets_to_transaction([where], metadata, REQUEST_TIMEOUT_S)
                result.put(None)
            except KafkaException as error:
                result.put(error)

        threading.Thread(target=send, daemon=True).start()
        try:
            error = result.get(timeout=COORDINATOR_TIMEOUT_S)
        except Empty:
            raise TimeoutError from None
        if error is not None:
            raise error

    def _say(self, state: str, records: list[list[int]]) -> None:
        say(transaction=[self.topic, self.life, self._transaction, state, records])

    def _again(self, call: Callable[[], object]) -> None:
        while True:
            try:
                call()
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise


class PulsarTopic(Topic):
    def __init__(self, name: str, bootstrap: str, url: str, http_url: str, seed: int) -> None:
        super().__init__(name, bootstrap, seed)
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
        self._client = pulsar.Client(url, logger=logger, operation_timeout_seconds=10)
        address = urlsplit(http_url)
        assert address.hostname is not None
        self._http = address.hostname, address.port

    def create(self) -> None:
        self._request("PUT", "", fine=(204, 409))

    def delete(self) -> None:
        self._request("DELETE", "?force=true", fine=(204, 404))

    def begin(self) -> None:
        self._count = self._processed = 0
        # Of the same name in each life: what is remembered of its predecessor would swallow the first messages.
        self._producer = self._made(
            lambda: self._client.create_producer(
                self.topic,
                producer_name=f"producer-{self.topic}",
                send_timeout_millis=0,
                batching_enabled=self.life % 2 == 0,
                max_pending_messages=10 * BURST_MAX,
            )
        )
        self._consumer = self._made(
            lambda: self._client.subscribe(
                self.topic,
                f"group-{self.topic}",
                pulsar.ConsumerType.Exclusive,
                initial_position=pulsar.InitialPosition.Earliest,
            )
        )

    def step(self) -> None:
        self.write()
        if self.choose.random() < 0.7:
            self._process()

    def write(self) -> None:
        acknowledged = threading.Semaphore(0)
        first = self._count
        self._count += self.choose.randrange(1, BURST_MAX)
        say(sent=[self.topic, self.life, 0, self._count])
        failures = []
        for number in range(first, self._count):

            def done(result: pulsar.Result, _message_id: Any, number: int = number) -> None:
                if result != pulsar.Result.Ok:
                    failures.append(f"message {number} was given up: {result}")
                acknowledged.release()

            self._producer.send_async(self.payload(0, number), done, sequence_id=number)
        for _ in range(first, self._count):
            acknowledged.acquire()
        if failures:
            say(broken=f"{self.topic}: {failures[0]}")
        say(acked=[self.topic, self.life, 0, self._count])

    def end(self) -> None:
        for each in (self._consumer, self._producer):
            with contextlib.suppress(pulsar.PulsarException):  # the server is away, and has forgotten it
                each.close()

    def _process(self) -> None:
        until = self._processed + self.choose.randrange(1, BURST_MAX)
        while self._processed < min(until, self._count):
            try:
                message = self._consumer.receive(100)
            except pulsar.Timeout:
                return
            self._processed += 1
            say(wanted=[self.topic, self.life, 0, self._processed])
            self._consumer.acknowledge(message)

    def _made(self, make: Callable[[], Any]) -> Any:
        while True:
            try:
                return make()
            except pulsar.PulsarException:
                time.sleep(RETRY_S)  # until the server is back

    def _request(self, method: str, query: str, fine: tuple[int, ...]) -> None:
        while True:
            connection = http.client.HTTPConnection(*self._http, timeout=REQUEST_TIMEOUT_S)
            try:
                connection.request(method, f"/admin/v2/{topic_path(self.topic)}{query}")
                answer = connection.getresponse()
                text = answer.read()
                if answer.status in fine:
                    return
                say(broken=f"{method} of {self.topic} was answered with {answer.status}: {text[:200]!r}")
                return
            except (OSError, http.client.HTTPException):
                time.sleep(RETRY_S)  # until the server is back
            finally:
                connection.close()


def main(bootstrap: str, pulsar_url: str, http_url: str, seed: str, marks: str = "") -> None:
    if marks:
        mark_events_in(Path(marks))
    topics: list[Topic] = [Idempotent(name, bootstrap, int(seed)) for name in IDEMPOTENT + COMPACTED]
    topics += [Transactional(name, bootstrap, int(seed)) for name in TRANSACTIONAL + COMPACTED_TRANSACTIONAL]
    topics += [PulsarTopic(name, bootstrap, pulsar_url, http_url, int(seed)) for name in PULSAR]
    for topic in topics:
        topic.start()
    for line in sys.stdin:
        word = line.strip()
        if word == "pause":
            faulthandler.dump_traceback_later(HANGS_S)  # says where each thread waits
            for topic in topics:
                topic.pause()
            for topic in topics:
                topic.wait_until_paused()
            faulthandler.cancel_dump_traceback_later()
        elif word == "resume":
            for topic in topics:
                topic.resume()
        child.say(done=word)
        if word == "stop":
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
