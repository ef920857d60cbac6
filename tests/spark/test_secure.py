"""Spark at a server with `--secure`: SQL and pipelines by a context, and no token where others look."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from magnetar.client.errors import NotFound
from magnetar.client.kafka.cluster import Cluster
from magnetar.client.kafka.entrance import Entrance
from magnetar.client.login import Server
from magnetar.client.pipelines import PipelinesClient
from magnetar.client.rest import RestClient
from magnetar.testing.server import MagnetarProcess
from tests.integration.secure.test_secure import Safe, produce
from tests.spark.pipelines import PATIENCE_S, settings

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

SQL = [sys.executable, "-c", "from magnetar.cli.main import main; main()", "sql", "--master", "local[2]"]


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Safe]:
    one = Safe(tmp_path_factory.mktemp("safe"))
    one.server = MagnetarProcess(
        arguments=["--secure"], data_dir=one.folder.parent, host=None, settings=settings()
    )
    with one.server:
        yield one


def server_of(safe: Safe) -> Server:
    return Server.of(str(safe.folder / "context.toml"))


def test_sql_reads_topics_by_a_context_and_shows_no_token(safe: Safe) -> None:
    for number in range(10):
        produce(safe.kafka(), "numbers", str(number).encode())
    asked = (
        "select cast(value as string) as n from numbers order by 1; explain extended select * from numbers"
    )
    done = subprocess.run(
        [*SQL, "--context", str(safe.folder / "context.toml"), "--output", "json", asked],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["n"] for row in rows[:10]] == [str(number) for number in range(10)]
    assert safe.token not in done.stdout + done.stderr
    refused = subprocess.run(
        [*SQL, "--url", f"https://localhost:{safe.server.http_port}", "select 1"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "SSL_CERT_FILE": str(safe.folder / "ca.pem")},
    )
    assert refused.returncode != 0
    assert "Authentication required" in refused.stderr


def test_pipelines_of_both_kinds_run_and_write_no_token_anywhere(safe: Safe) -> None:
    server = server_of(safe)
    client = PipelinesClient(server.url, retry_s=60.0, login=server.login())
    rest = RestClient(server.url, login=server.login())
    cluster = Cluster(
        safe.kafka()["bootstrap.servers"], entrance=Entrance.of(str(safe.folder / "context.toml"))
    )
    for topic in ("from", "to"):
        cluster.create_topic(topic, 1)
    cluster.close()
    for number in range(10):
        produce(safe.kafka(), "from", str(number).encode())
    copy = {"source": {"subscribe": "from"}, "sql": "select key, value from source", "sink": {"topic": "to"}}
    client.create("copy", "query", copy)
    client.create(
        "keep", "table", {"topics": "from", "path": "kept", "format": "parquet", "trigger": "1 second"}
    )

    def records(topic: str) -> int:
        try:
            return rest.offsets([(topic, 0, None)])[0].last_stable
        except NotFound:
            return 0

    give_up_at = time.monotonic() + PATIENCE_S
    while records("to") < 10 or client.get("keep").status.get("rows", 0) < 10:
        states = [(row.name, row.state, row.reason) for row in client.all()]
        assert time.monotonic() < give_up_at, states
        assert "FAILED" not in [state for _, state, _ in states], states
        time.sleep(0.25)
    assert list((safe.folder.parent / "tables" / "kept").rglob("*.parquet"))
    for file in (safe.folder.parent / "pipelines").rglob("*"):
        assert not file.is_file() or safe.token.encode() not in file.read_bytes(), file
    with_context = {**copy, "source": {"subscribe": "from", "context": "/etc/passwd.toml"}}
    client.create("bad", "query", with_context)
    while client.get("bad").state != "FAILED":
        assert time.monotonic() < give_up_at
        time.sleep(0.25)
    assert "the option context of source cannot be given" in client.get("bad").reason
    for row in client.all():
        client.delete(row.name, force=True)
    client.close()
    rest.close()
