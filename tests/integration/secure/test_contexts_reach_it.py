"""`magnetar`'s own commands and clients at a server with `--secure`, by a context."""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.base.contexts import Context, Contexts, read_contexts, write_contexts
from magnetar.client import login
from magnetar.client.kafka.cluster import Cluster
from magnetar.client.kafka.entrance import Entrance
from magnetar.client.kafka.errors import KafkaClientError, NotInTime
from magnetar.server.token_tool import make_token
from magnetar.testing.certificates import Authority
from magnetar.testing.server import MagnetarProcess
from tests.warm_starts import run_command


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(arguments=["--secure"], host=None) as one:
        yield one


@pytest.fixture(scope="module")
def folder(server: MagnetarProcess) -> Path:
    return server.data_dir / "security"


def run(home: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAGNETAR_")}
    return run_command(*arguments, environment={**kept, "XDG_CONFIG_HOME": str(home), **environment})


def listed(done: "subprocess.CompletedProcess[str]") -> object:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_servers_own_context_works_as_it_is(folder: Path, tmp_path: Path) -> None:
    file = str(folder / "context.toml")
    assert listed(run(tmp_path, "pipelines", "list", "-o", "json", "--context", file)) == []
    assert listed(run(tmp_path, "pipelines", "list", "-o", "json", MAGNETAR_CONTEXT=file)) == []


def test_a_context_is_added_used_and_removed(folder: Path, tmp_path: Path) -> None:
    ask = ("pipelines", "list", "-o", "json")
    assert run(tmp_path, "context", "add", "safe", "--from", str(folder / "context.toml")).returncode == 0
    assert listed(run(tmp_path, *ask)) == []
    command = f"cat {folder / 'admin.token'}"
    url = read_contexts(folder / "context.toml").by_name["secure"].url
    added = run(
        tmp_path,
        "context",
        "add",
        "other",
        "--url",
        url,
        "--token-command",
        command,
        "--ca",
        str(folder / "ca.pem"),
    )
    assert added.returncode == 0, added.stderr
    assert [
        (row["name"], row["current"])
        for row in json.loads(run(tmp_path, "context", "list", "-o", "json").stdout)
    ] == [
        ("other", False),
        ("safe", True),
    ]
    assert listed(run(tmp_path, *ask, "--context", "other")) == []
    assert run(tmp_path, "context", "use", "other").returncode == 0
    assert listed(run(tmp_path, *ask)) == []
    assert run(tmp_path, "context", "remove", "other").returncode == 0
    assert "* " not in run(tmp_path, "context", "list").stdout
    assert listed(run(tmp_path, *ask, "--context", "safe")) == []
    kept = (tmp_path / "magnetar" / "contexts.toml").read_text()
    assert (folder / "admin.token").read_text() not in kept


def test_what_is_not_shown_or_not_trusted_is_refused_in_one_sentence(
    server: MagnetarProcess, folder: Path, tmp_path: Path
) -> None:
    url = f"https://localhost:{server.http_port}"
    without_token = tmp_path / "a.toml"
    write_contexts(without_token, Contexts({"a": Context(url, str(folder / "ca.pem"))}, "a"))
    done = run(tmp_path, "pipelines", "list", "--context", str(without_token))
    assert (done.returncode, done.stdout) == (1, "")
    assert "Authentication required" in done.stderr
    stranger = tmp_path / "b.toml"
    other = Authority(tmp_path, "Stranger").certificate
    write_contexts(stranger, Contexts({"a": Context(url, str(other), str(folder / "admin.token"))}, "a"))
    with pytest.raises(KafkaClientError, match="the certificate of localhost is not good"):
        cluster_of(server, stranger).partition_count("t")


def cluster_of(server: MagnetarProcess, context: Path) -> Cluster:
    return Cluster(f"localhost:{server.ports[0]}", patience_s=5.0, entrance=Entrance.of(str(context)))


def test_our_kafka_client_logs_in_by_the_context(server: MagnetarProcess, folder: Path) -> None:
    cluster = cluster_of(server, folder / "context.toml")
    cluster.create_topic("by-us", 2)
    assert cluster.partition_count("by-us") == 2
    cluster.close()


def test_a_token_that_is_refused_is_said_and_one_that_was_replaced_is_taken(
    server: MagnetarProcess, folder: Path, tmp_path: Path
) -> None:
    token, file = tmp_path / "token", tmp_path / "c.toml"
    token.write_text("nonsense")
    url = f"https://localhost:{server.http_port}"
    write_contexts(file, Contexts({"a": Context(url, str(folder / "ca.pem"), str(token))}, "a"))
    cluster = cluster_of(server, file)
    with pytest.raises(KafkaClientError, match="refuses the token of the context") as caught:
        cluster.create_topic("refused", 1)
    assert "nonsense" not in str(caught.value)
    token.write_text((folder / "admin.token").read_text())
    cluster.create_topic("taken", 1)
    assert cluster.partition_count("taken") == 1
    cluster.close()


def test_a_login_that_ends_is_begun_anew_before_and_by_a_token_that_is_new(
    server: MagnetarProcess, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection whose login had ended broke in the middle of what was asked."""
    monkeypatch.setattr(login, "LOOK_EVERY_S", 0.2)
    token, file = tmp_path / "token", tmp_path / "c.toml"
    key = (folder / "token.key").as_uri()

    def renew() -> None:
        token.write_text(make_token("admin", "", key, None, "3s", []))

    renew()
    url = f"https://localhost:{server.http_port}"
    write_contexts(file, Contexts({"a": Context(url, str(folder / "ca.pem"), str(token))}, "a"))
    connections: set[int] = set()
    with contextlib.closing(cluster_of(server, file)) as cluster:
        cluster.create_topic("renewed", 1)
        give_up_at = time.monotonic() + 30
        while len(connections) < 4:
            assert time.monotonic() < give_up_at
            connections.add(cluster.any_node()._socket.getsockname()[1])
            cluster.refresh(["renewed"])
            renew()
            time.sleep(0.1)  # the pace of a query
    assert "did not log in again" not in server.log


def test_without_an_entrance_nothing_is_had(server: MagnetarProcess) -> None:
    cluster = Cluster(f"localhost:{server.ports[0]}", patience_s=1.0)
    with pytest.raises(NotInTime):
        cluster.create_topic("t", 1)
