"""The load that `make bench` makes of readers that follow a topic: each gets each record, once."""

import pytest

from bench import admin
from bench.tails import IN_SESSION, PLAIN, tails
from magnetar.testing.server import MagnetarProcess

READERS, PARTITIONS, ROUNDS = 3, 5, 12


@pytest.mark.parametrize("version", [PLAIN, IN_SESSION])
def test_readers_of_the_bench_get_each_record_once(version: int) -> None:
    with (
        MagnetarProcess() as server,
        admin.topic(server.bootstrap, "followed", PARTITIONS) as topic,
        tails(
            "127.0.0.1", server.ports[0], topic, readers=READERS, partitions=PARTITIONS, version=version
        ) as load,
    ):
        for _ in range(2):
            rounds = load.run(ROUNDS)
            assert rounds.delivered == READERS * ROUNDS
            assert len(rounds.produce_s) == ROUNDS
