"""Drivers of databases by the names of their jars: a topic into a table and the table into a topic, under kills.

It needs Maven Central, once, for two drivers: opt in with MAGNETAR_JDBC=1.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.client.pipelines import PipelinesClient
from magnetar.testing.server import MagnetarProcess
from tests.peers import INSTALL_S, PEERS_HOME, one_at_a_time
from tests.spark.pipelines import World, settings
from tests.spark.test_sources import values_of
from tests.spark.test_tables import declare, produce

DRIVERS = {
    "h2": ("com.h2database:h2:2.4.240", "jdbc:h2:file:{}/db"),
    "sqlite": ("org.xerial:sqlite-jdbc:3.53.4.0", "jdbc:sqlite:{}/db"),
}

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.crash,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(INSTALL_S + 1800),
    pytest.mark.skipif(
        not os.environ.get("MAGNETAR_JDBC") or shutil.which("mvn") is None,
        reason="opt in with MAGNETAR_JDBC=1; needs Maven",
    ),
]


def fetched(artifact: str) -> Path:
    _, name, version = artifact.split(":")
    folder = PEERS_HOME / "jdbc"
    jar = folder / f"{name}-{version}.jar"
    with one_at_a_time():
        if not jar.exists():
            copy = [
                "mvn",
                "-q",
                "-B",
                "dependency:copy",
                f"-Dartifact={artifact}",
                f"-DoutputDirectory={folder}",
            ]
            subprocess.run(copy, check=True, timeout=INSTALL_S, stdin=subprocess.DEVNULL)
    return jar


@pytest.mark.parametrize("name", DRIVERS)
def test_a_topic_comes_back_from_a_database_once_whatever_is_killed(name: str, tmp_path: Path) -> None:
    artifact, url = DRIVERS[name]
    jar = fetched(artifact)
    with MagnetarProcess(settings=settings()) as server:
        folder = server.data_dir / "jdbc"
        folder.mkdir()
        shutil.copy(jar, folder)
        text = f'[shop]\nurl = "{url.format(tmp_path)}"\ndriver = "{jar.name}"\n'
        (folder / "databases.toml").write_text(text)
        world = World(server)
        declare(server, "first", n="int", name="string")
        produce(server, "first", [b'{"n": %d, "name": "x"}' % n for n in range(300)])
        of_database = {"format": "jdbc", "database": "shop", "table": "numbers", "trigger": "1 second"}
        client: PipelinesClient = world.client
        client.create("down", "table", {**of_database, "topics": "first", "metadata_columns": ["offset"]})
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic("second", 1, 1)])["second"].result(60)
        client.create("up", "source", {**of_database, "column": "n", "topic": "second"})
        found: list[int] = []

        def all_of(count: int) -> bool:
            found.extend(json.loads(value)["n"] for value in values_of(server, "second"))
            return len(found) >= count

        world.until(lambda: all_of(300))
        for begin, victim in ((300, "bin/java"), (600, "magnetar worker"), (900, "bin/java")):
            produce(server, "first", [b'{"n": %d, "name": "x"}' % n for n in range(begin, begin + 300)])
            world.kill(victim)
            world.until(lambda end=begin + 300: all_of(end))  # type: ignore[misc]
        all_of(1201)  # what would be there twice
        assert sorted(found) == [*range(1200)]
        world.close()
