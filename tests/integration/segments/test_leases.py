"""What a running batch reads stays readable: over retention, deleted records, deleted topics and a killed server."""

import json
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from magnetar.client.errors import NotFound, OutOfRange, Refused
from magnetar.client.rest import Range, RestClient, Segments
from magnetar.testing.server import MagnetarProcess

from .reading import from_files
from .topics import TIMEOUT_S, make_topic, produce

pytestmark = pytest.mark.clients


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def leased(server: MagnetarProcess, client: RestClient, topic: str, lease_s: float = 600) -> Segments:
    """Three segments of a new topic, under a lease."""
    make_topic(server, topic, segment_bytes=str(1 << 20))
    while len(client.segments([Range(topic, 0)]).partitions[0].segments) < 3:
        produce(server, topic, 1500)
    found = client.segments([Range(topic, 0)], lease_s=lease_s)
    assert found.lease is not None
    return found


def end_of(found: Segments) -> int:
    return found.partitions[0].high_watermark


def read(found: Segments) -> set[int]:
    assert found.store is not None
    return set(from_files(found.partitions[0], found.store))


def paths(found: Segments) -> list[Path]:
    return [Path(segment.path) for segment in found.partitions[0].segments]


def delete_records(server: MagnetarProcess, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for done in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        done.result(TIMEOUT_S)


def test_deleted_records_stay_readable_until_the_lease_ends(
    server: MagnetarProcess, client: RestClient
) -> None:
    found = leased(server, client, "emptied")
    delete_records(server, "emptied", end_of(found))
    assert client.offsets([("emptied", 0, None)])[0].earliest == end_of(found)
    assert read(found) >= set(range(found.partitions[0].tail_from))
    with pytest.raises(OutOfRange):
        client.entries("emptied", 0, 0)
    with urllib.request.urlopen(f"{server.http_url}/metrics") as answer:
        rows = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines())
    assert float(rows["magnetar_leases"]) >= 1
    assert float(rows["magnetar_leased_segments_deleted"]) >= len(paths(found)) - 1
    client.end_lease(found.lease or "")
    eventually(lambda: not any(path.exists() for path in paths(found)[:-1]))
    with pytest.raises(NotFound) as gone:
        client.renew_lease(found.lease or "", 10)
    assert gone.value.code == "LEASE_NOT_FOUND"


def test_a_deleted_topic_stays_readable_over_a_kill_until_the_lease_lapses(
    server: MagnetarProcess, client: RestClient
) -> None:
    found = leased(server, client, "dropped", lease_s=3)
    lease = found.lease or ""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.delete_topics(["dropped"])["dropped"].result(TIMEOUT_S)
    server.kill()
    server.start()
    client.renew_lease(lease, 3)
    assert read(found) >= set(range(found.partitions[0].tail_from))
    server.restart()  # and over one that is stopped as it should be
    assert read(found) >= set(range(found.partitions[0].tail_from))
    client.renew_lease(lease, 1)
    eventually(lambda: not any(path.exists() for path in paths(found)))
    with pytest.raises(NotFound):
        client.renew_lease(lease, 10)


def test_a_truncated_topic_stays_readable(server: MagnetarProcess, client: RestClient) -> None:
    found = leased(server, client, "cut")
    url = f"{server.http_url}/admin/v2/persistent/public/default/cut/truncate"
    with urllib.request.urlopen(urllib.request.Request(url, method="DELETE")) as answer:
        assert answer.status == 204
    assert read(found) >= set(range(found.partitions[0].tail_from))
    again = client.segments([Range("cut", 0)], lease=found.lease)
    assert (again.lease, again.partitions[0].earliest) == (found.lease, end_of(found))
    client.end_lease(found.lease or "")
    eventually(lambda: not any(path.exists() for path in paths(found)[:-1]))


def test_retention_leaves_leased_files_alone() -> None:
    settings = {"log.retention.check.interval.ms": "200"}
    with MagnetarProcess(settings=settings) as server, RestClient(server.http_url) as client:
        found = leased(server, client, "aged")
        admin = f"{server.http_url}/admin/v2/persistent/public/default/aged/retention"
        body = json.dumps({"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}).encode()
        client.set_positions("reader", [("aged", 0, end_of(found))])
        request = urllib.request.Request(
            admin, data=body, method="POST", headers={"content-type": "application/json"}
        )
        urllib.request.urlopen(request).close()
        eventually(lambda: client.offsets([("aged", 0, None)])[0].earliest > 0)
        assert all(path.exists() for path in paths(found))
        assert read(found) >= set(range(found.partitions[0].tail_from))
        client.end_lease(found.lease or "")
        eventually(lambda: not paths(found)[0].exists())


def test_reads_under_leases_go_on_while_records_are_deleted_behind_them(
    server: MagnetarProcess, client: RestClient
) -> None:
    make_topic(server, "moving", segment_bytes=str(1 << 20))
    stop = threading.Event()

    def write_and_delete() -> None:
        while not stop.is_set():
            produce(server, "moving", 1200)
            high_watermark = client.offsets([("moving", 0, None)])[0].high_watermark
            delete_records(server, "moving", max(high_watermark - 1000, 0))

    thread = threading.Thread(target=write_and_delete)
    thread.start()
    read_count = 0
    try:
        for _ in range(30):
            found = client.segments([Range("moving", 0)], lease_s=30)
            located = found.partitions[0]
            time.sleep(0.02)
            if found.lease is not None:
                assert read(found) >= set(range(located.from_offset, located.tail_from))
                read_count += 1
                client.end_lease(found.lease)
    finally:
        stop.set()
        thread.join()
    assert read_count > 10


@pytest.mark.parametrize("wrong", ["soon", 0, -5, 1e9, True])
def test_a_length_that_is_none_is_refused(server: MagnetarProcess, client: RestClient, wrong: float) -> None:
    with pytest.raises(Refused, match="lease_s must be a number of seconds, up to 3600"):
        client.segments([], lease_s=wrong)


@pytest.mark.parametrize("wrong", [float("inf"), float("nan")])
def test_a_length_that_json_does_not_have_is_refused(client: RestClient, wrong: float) -> None:
    with pytest.raises(Refused, match="the body is not JSON: Out of range float"):
        client.segments([], lease_s=wrong)


def test_nothing_to_keep_is_no_lease(server: MagnetarProcess, client: RestClient) -> None:
    make_topic(server, "bare")
    assert client.segments([Range("bare", 0)], lease_s=10).lease is None
    with pytest.raises(NotFound):
        client.segments([Range("bare", 0)], lease="../../lock")
    client.end_lease("never given")


def test_what_was_told_of_an_open_file_holds_over_a_kill_and_what_is_written_after_it(
    server: MagnetarProcess, client: RestClient
) -> None:
    make_topic(server, "killed")
    told = []
    for _ in range(4):
        produce(server, "killed", 1700)
        found = client.segments([Range("killed", 0)], lease_s=600)
        told.append((found, from_files(found.partitions[0], found.store or "")))
        server.kill()  # nothing was synced or noted since the last start, and replay writes it again
        server.spawn()
        for before, wanted in told:
            assert from_files(before.partitions[0], before.store or "") == wanted
        server.wait_ready()
        produce(server, "killed", 100)
        for before, wanted in told:
            assert from_files(before.partitions[0], before.store or "") == wanted
    assert sum(len(wanted) for _, wanted in told) > 5000
