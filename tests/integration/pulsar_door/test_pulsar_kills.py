"""Consumers of a server that is killed, restarted and stopped under them."""

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pulsar
import pytest
from pulsar import ConsumerType, InitialPosition, MessageId

from magnetar.ledger.cursor import Cursor
from magnetar.ledger.stored_cursors import ROOT as CURSORS_ROOT
from magnetar.testing.server import MagnetarProcess

from .clients import new_client

pytestmark = pytest.mark.crash
Fill = Callable[..., list[MessageId]]
MESSAGES = 2_000


@pytest.mark.parametrize("kind", [ConsumerType.Shared, ConsumerType.Failover], ids=lambda kind: kind.name)
def test_every_acknowledged_message_is_processed_over_kills(kind: ConsumerType) -> None:
    with MagnetarProcess() as server:
        client = new_client(server.pulsar_url)
        consumers = [
            client.subscribe(
                "t",
                "s",
                consumer_type=kind,
                initial_position=InitialPosition.Earliest,
                consumer_name=f"c{number}",
            )
            for number in range(2)
        ]
        processed: list[int] = []
        done = threading.Event()

        def consume(consumer: pulsar.Consumer) -> None:
            while not done.is_set():
                try:
                    message = consumer.receive(200)
                except pulsar.Timeout:
                    continue
                processed.append(int(message.data()))
                consumer.acknowledge(message)

        threads = [threading.Thread(target=consume, args=(consumer,)) for consumer in consumers]
        for thread in threads:
            thread.start()
        sent: set[int] = set()

        def receipt(number: int, result: pulsar.Result) -> None:
            if result == pulsar.Result.Ok:
                sent.add(number)

        producer = client.create_producer("t", batching_max_publish_delay_ms=5, block_if_queue_full=True)
        for number in range(MESSAGES):
            producer.send_async(b"%d" % number, lambda result, _, number=number: receipt(number, result))
            if number in (600, 1300):
                server.kill()
                server.restart()
            if number % 20 == 0:
                time.sleep(0.005)
        producer.flush()
        deadline = time.monotonic() + 60
        while sent - set(processed):
            assert time.monotonic() < deadline, f"lost: {sorted(sent - set(processed))[:20]}"
            time.sleep(0.05)
        time.sleep(0.3)  # acknowledgements that the client still groups
        done.set()
        for thread in threads:
            thread.join()
        client.close()
        assert len(sent) == MESSAGES
        # All of it is acknowledged: after a stop and a start nothing comes again.
        server.restart()
        client = new_client(server.pulsar_url)
        again = client.subscribe("t", "s", consumer_type=kind)
        with pytest.raises(pulsar.Timeout):
            again.receive(500)
        client.close()


def stored_position(data_dir: Path, subscription: str) -> int:
    """The first offset that the subscription has not acknowledged, as it is on the disk of a running server."""
    url = f"file:{data_dir / 'metadata.sqlite'}?mode=ro"
    with closing(sqlite3.connect(url, uri=True)) as connection:
        path = f"{CURSORS_ROOT}{subscription}/%"
        ((value,),) = connection.execute("SELECT value FROM node WHERE path LIKE ?", (path,)).fetchall()
    return Cursor.decode(value).mark_delete


def test_a_killed_server_remembers_positions_of_a_second_ago(tmp_path: Path) -> None:
    with MagnetarProcess(data_dir=tmp_path / "data") as server:
        client = new_client(server.pulsar_url)
        consumer = client.subscribe("t", "s", receiver_queue_size=10)
        producer = client.create_producer("t", batching_enabled=False)
        for number in range(100):
            producer.send(b"%d" % number)
        for number in range(60):
            message = consumer.receive(10_000)
            assert message.data() == b"%d" % number
            consumer.acknowledge(message)
        deadline = time.monotonic() + 30
        while stored_position(tmp_path / "data", "s") != 60:
            assert time.monotonic() < deadline, "the position is not stored"
            time.sleep(0.05)
        server.kill()
        with suppress(pulsar.NotConnected):  # the server is gone
            client.close()
        server.restart()
        client = new_client(server.pulsar_url)
        consumer = client.subscribe("t", "s")
        assert [int(consumer.receive(10_000).data()) for _ in range(40)] == list(range(60, 100))
        client.close()
