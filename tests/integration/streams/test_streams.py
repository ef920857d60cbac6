"""Kafka Streams with exactly_once_v2 beside kill -9 of itself and of the server."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from magnetar.testing.server import MagnetarProcess
from magnetar.wire.kafka.messages.list_groups import ListGroupsRequest
from tests.integration.java_tools import KafkaTools, needs_java
from tests.integration.server.wire import Wire

from .running_sums import (
    ACCOUNTS,
    AMOUNTS,
    CHANGELOG,
    PARTITIONS,
    REPARTITION,
    SETTINGS,
    SUMS,
    TIMEOUT_S,
    RunningSums,
)

pytestmark = needs_java
TOOL = "org.apache.kafka.tools.streams.StreamsGroupCommand"


@pytest.fixture
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(settings=SETTINGS) as process:
        yield process
        assert "Traceback" not in process.log, process.log[-5000:]


@pytest.mark.crash
def test_sums_are_exact_after_kills_and_a_restore_from_a_compacted_changelog(
    server: MagnetarProcess, tmp_path: Path
) -> None:
    with RunningSums(server, tmp_path, seed=1) as sums:
        application = sums.application
        sums.write(200)
        application.start()
        sums.wait_for(50)
        sums.write(200)
        server.kill()
        server.restart()
        sums.finish()
        assert sums.config_of(CHANGELOG)["cleanup.policy"] == "compact"
        assert sums.config_of(REPARTITION)["cleanup.policy"] == "delete"
        assert sums.config_of(REPARTITION)["retention.ms"] == "-1"
        left = sums.wait_until_compacted()
        sums.write(200)
        sums.wait_for(sums.written_count - 150)
        application.kill()
        server.kill()
        sums.forget_state()
        began = len(application.lines)
        server.restart()
        sums.write(50)
        application.start()
        sums.finish()
        restored = [
            int(application.says(f"restored {CHANGELOG}-{index} ", began).split()[-1])
            for index in range(PARTITIONS)
        ]
        # Above each commit there is a marker, which restoring counts as an offset and not as a record.
        assert len(ACCOUNTS) <= sum(restored) <= left + 200, application.tail


def wait_until_empty(server: MagnetarProcess) -> None:
    """Until the server has given the killed members up."""
    deadline = time.monotonic() + TIMEOUT_S
    with Wire(server.ports[0]) as wire:
        while not wire.ask("list_groups", 5, ListGroupsRequest(["Empty"], ["streams"])).groups:
            assert time.monotonic() < deadline
            time.sleep(0.2)


@pytest.mark.crash
def test_by_the_streams_protocol_one_instance_takes_over_from_the_other(
    server: MagnetarProcess, tmp_path: Path
) -> None:
    with RunningSums(server, tmp_path, seed=2, protocol="streams") as sums:
        first, second = sums.application, sums.other
        sums.write(200)
        first.start()
        sums.finish()
        assert sums.config_of(CHANGELOG)["cleanup.policy"] == "compact"
        assert sums.config_of(REPARTITION)["cleanup.policy"] == "delete"
        assert sums.config_of(REPARTITION)["retention.ms"] == "-1"
        second.start()
        moved = second.says(f"restored {CHANGELOG}-").split()[1]  # it has been given this one's task
        (stayed,) = {f"{CHANGELOG}-{index}" for index in range(PARTITIONS)} - {moved}
        sums.write(200)
        sums.finish()
        with KafkaTools(server.bootstrap) as tools:
            members = tools.run(TOOL, "--describe", "--group", "sums", "--members", "--verbose")
            listed = tools.run(TOOL, "--list", "--state")
        assert len([line for line in members.splitlines() if line.startswith("sums")]) == 2, members
        assert ["sums", "Stable"] in [line.split() for line in listed.splitlines()], listed
        sums.write(200)
        first.kill()
        server.kill()
        server.restart()
        sums.finish()
        assert second.says(f"restored {stayed} ")


@pytest.mark.crash
def test_by_the_streams_protocol_an_application_restores_what_it_has_lost_and_tools_manage_its_group(
    server: MagnetarProcess, tmp_path: Path
) -> None:
    with RunningSums(server, tmp_path, seed=3, protocol="streams") as sums:
        sums.write(200)
        sums.application.start()
        sums.finish()
        sums.application.kill()
        server.kill()
        sums.forget_state()
        began = len(sums.application.lines)
        server.restart()
        sums.write(50)
        sums.application.start()
        sums.finish()
        for index in range(PARTITIONS):
            assert sums.application.says(f"restored {CHANGELOG}-{index} ", began)
        sums.application.kill()
    wait_until_empty(server)
    assert committed(server) == {0: 125, 1: 125}
    group = ["--group", "sums"]
    with KafkaTools(server.bootstrap) as tools:
        empty = tools.run(TOOL, "--list", "--state", "Empty")
        assert ["sums", "Empty"] in [line.split() for line in empty.splitlines()], empty
        described = tools.run(TOOL, "--describe", *group, "--state")
        assert ["Empty", "0"] in [line.split()[-2:] for line in described.splitlines()], described
        tools.run(TOOL, "--reset-offsets", *group, "--all-input-topics", "--to-offset", "3", "--execute")
        assert committed(server) == {0: 3, 1: 3}
        tools.run(TOOL, "--delete", *group, "--delete-all-internal-topics")
        assert tools.run(TOOL, "--list") == ""
    topics = AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(timeout=TIMEOUT_S).topics
    assert {AMOUNTS, SUMS} <= {*topics}
    assert not {REPARTITION, CHANGELOG} & {*topics}


def committed(server: MagnetarProcess) -> dict[int, int]:
    """The application's offsets of what it reads, by partition."""
    asked = ConsumerGroupTopicPartitions("sums")
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    found = admin.list_consumer_group_offsets([asked])["sums"].result(TIMEOUT_S).topic_partitions
    return {one.partition: one.offset for one in found if one.topic == AMOUNTS}
