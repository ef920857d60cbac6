"""A right that is taken ends what was begun by it, at a running server and within a second."""

import time
from collections.abc import Callable, Iterator
from typing import Final

import httpx
import pytest

from magnetar.broker.security.model import subscription_resource
from magnetar.wire.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from magnetar.wire.pulsar import PulsarApi_pb2 as pb
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand
from tests.integration.server.wire import eventually, record_batch

from .book import SUPER, TOPIC, Book
from .ruled import Ruled, running

pytestmark = pytest.mark.xdist_group("revoked rights")
WITHIN_S: Final = 1.0
ROLE: Final = "ann"
GRANT: Final = f"/admin/v2/namespaces/public/default/permissions/{ROLE}"
SEGMENT_BYTES: Final = 1 << 20


@pytest.fixture(scope="module")
def ruled() -> Iterator[Ruled]:
    """A topic with records in files."""
    with running(Book(subscription_resource(TOPIC, "s"))) as one:
        with one.kafka(SUPER) as kafka:
            config = CreatableTopicConfig("segment.bytes", str(SEGMENT_BYTES))
            made = CreateTopicsRequest([CreatableTopic("t", 1, 1, configs=[config])], 10_000)
            assert not kafka.ask("create_topics", 7, made).topics[0].error_code
            for _ in range(4):
                batch = record_batch([bytes(SEGMENT_BYTES * 3 // 4)])
                assert not kafka.produce("t", batch).error_code
        yield one


@pytest.fixture
def revoke(ruled: Ruled) -> Iterator[Callable[[], float]]:
    """The role may consume; what takes that away, and says by when it has ended what it must."""
    with ruled.http(SUPER) as http:
        assert http.post(GRANT, json=["consume"]).status_code == httpx.codes.NO_CONTENT

        def taken() -> float:
            assert http.delete(GRANT).status_code == httpx.codes.NO_CONTENT
            return time.monotonic() + WITHIN_S

        yield taken


def test_a_watcher_hears_that_its_topics_have_gone(ruled: Ruled, revoke: Callable[[], float]) -> None:
    command = pb.CommandWatchTopicList(
        namespace="public/default", watcher_id=1, request_id=1, topics_pattern="public/default/.*"
    )
    with ruled.pulsar(ROLE) as wire:
        wire.say(command)
        kind, first = wire.answer()
        assert kind == BaseCommand.WATCH_TOPIC_LIST_SUCCESS
        assert any(one.startswith(TOPIC) for one in first.topic)
        by = revoke()
        found = wire.hear()
        assert time.monotonic() < by
        assert found is not None
        assert (found[0], list(found[1].deleted_topics)) == (
            BaseCommand.WATCH_TOPIC_UPDATE,
            list(first.topic),
        )
        wire.say(command)
        assert wire.answer()[0] == BaseCommand.ERROR


def test_a_lease_on_segments_has_ended(ruled: Ruled, revoke: Callable[[], float]) -> None:
    with ruled.http(ROLE) as http:
        wanted = {"partitions": [{"topic": "t", "partition": 0}], "lease_s": 600}
        given: list[str | None] = []

        def is_given() -> bool:
            given.append(http.post("/magnetar/v1/segments", json=wanted).json()["lease"])
            return given[-1] is not None

        eventually(is_given, "no records are in files")
        lease = given[-1]
        renewal = f"/magnetar/v1/leases/{lease}"
        assert http.post(renewal, json={}).is_success
        by = revoke()
        while (answer := http.post(renewal, json={})).is_success:
            assert time.monotonic() < by
        assert answer.json()["error"] == "LEASE_NOT_FOUND"
