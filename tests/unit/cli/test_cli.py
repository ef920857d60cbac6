import gc
import json
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

import magnetar.server
from magnetar.base.errors import ConfigError, StorageError
from magnetar.base.settings import ServerSettings
from magnetar.base.settings_table import SERVER_KEYS
from magnetar.cli.main import run

Served = list[ServerSettings]


def serve_with(monkeypatch: pytest.MonkeyPatch, serve: Callable[[ServerSettings], int]) -> None:
    """Put `serve` in the server's place."""
    server = SimpleNamespace(run=serve)
    monkeypatch.setitem(sys.modules, "magnetar.server.standalone", server)
    monkeypatch.setattr(magnetar.server, "standalone", server, raising=False)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Served:
    """The settings that the server was started with; it ends at once, with 0."""
    settings: Served = []

    def serve(one: ServerSettings) -> int:
        settings.append(one)
        return 0

    serve_with(monkeypatch, serve)
    monkeypatch.chdir(tmp_path)
    for name in ("MAGNETAR_NUM_PARTITIONS", "MAGNETAR_KAFKA_PORT"):
        monkeypatch.delenv(name, raising=False)
    return settings


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence on standard error; nothing is on standard output."""
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("magnetar: ")
    return lines[0]


def test_standalone_needs_no_argument(served: Served, tmp_path: Path) -> None:
    assert run(["standalone"]) == 0
    (settings,) = served
    assert settings.data_dir == tmp_path / "magnetar-data"
    assert settings.data_dir.is_dir()
    assert settings.network.listeners[0].port == 9092
    assert settings.network.http_port == 8080


def test_the_collector_stands_still_when_the_server_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    collects: list[bool] = []

    def serve(_: ServerSettings) -> int:
        collects.append(gc.isenabled())
        return 0

    serve_with(monkeypatch, serve)
    assert run(["standalone", "--data-dir", str(tmp_path)]) == 0
    assert [*collects, gc.isenabled()] == [False, True]


def test_flags_are_over_set_over_environment_over_file(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nbroker.rack=file\nkafka.port=1\ngroup.max.size=2\n")
    monkeypatch.setenv("MAGNETAR_NUM_PARTITIONS", "3")
    monkeypatch.setenv("MAGNETAR_KAFKA_PORT", "3")
    arguments = ["standalone", "--config", str(file), "--set", "broker.rack=set", "--set", "kafka.port=4"]
    arguments += ["--data-dir", "d", "--host", "::1", "--kafka-port", "5", "--http-port", "0", "--nodes", "3"]
    arguments += ["--log-level", "debug", "--log-format", "json"]
    assert run(arguments) == 0
    (settings,) = served
    assert settings.groups.group_max_size == 2
    assert settings.topics.partition_count_default == 3
    assert settings.nodes.rack == "set"
    assert settings.network.listeners[0].port == 5
    assert settings.network.listeners[0].host == settings.network.http_host == "::1"
    assert settings.network.http_port == 0
    assert settings.nodes.count == 3
    assert settings.data_dir == tmp_path / "d"
    assert (settings.log.level, settings.log.format) == ("debug", "json")


def test_the_servers_exit_code_is_the_commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    serve_with(monkeypatch, lambda settings: 7)
    assert run(["standalone"]) == 7


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["standalone", "--set", "num.partition=3"], "did you mean num.partitions?"),
        (["standalone", "--set", "num.partitions=0"], "must be from 1 to 10000"),
        (["standalone", "--nodes", "0"], "--nodes: nodes must be from 1 to"),
        (["standalone", "--log-level", "loud"], "--log-level: log.level must be one of"),
        (["standalone", "--kafka-port", "x"], "--kafka-port"),
        (["standalone", "--kafka-port", "70000"], "--kafka-port: kafka.port must be from 0 to 65535"),
        (["standalone", "--config", "missing"], "configuration file missing cannot be read: No such file"),
        (["standalone", "--config", "."], "configuration file . cannot be read: Is a directory"),
        (["standalone", "--data-dir", "file/data"], "cannot be made: Not a directory; choose another one"),
        (["standalone", "--data-dir", "file"], "cannot be made: File exists; choose another one"),
        (["standalone", "--kafka-prot", "1"], "--kafka-prot"),
        (["standalone", "extra"], "extra"),
        (["nonsense"], "nonsense"),
        (["config"], "Missing command"),
        (["config", "nonsense"], "nonsense"),
        (["config", "list", "--output", "xml"], "xml"),
    ],
)
def test_a_users_error_is_one_sentence_and_exit_code_2(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    (tmp_path / "file").write_text("")
    assert run(arguments) == 2
    assert sentence in complaint(capsys)
    assert served == []


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (
            ConfigError("cannot listen on *:9092: Address already in use"),
            2,
            "cannot listen on *:9092: Address already",
        ),
        (PermissionError(13, "Permission denied", "/etc/lock"), 2, "/etc/lock: Permission denied"),
        (OSError(28, "No space left on device"), 2, "No space left on device"),
        (StorageError("the journal cannot be read"), 1, "the journal cannot be read"),
    ],
)
def test_what_the_server_raises_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: int,
    sentence: str,
) -> None:
    def fail(settings: ServerSettings) -> int:
        raise error

    monkeypatch.chdir(tmp_path)
    serve_with(monkeypatch, fail)
    assert run(["standalone"]) == code
    assert sentence in complaint(capsys)


def test_trouble_with_the_data_dir_names_the_next_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(settings: ServerSettings) -> int:
        raise PermissionError(13, "Permission denied", str(settings.data_dir / "lock"))

    serve_with(monkeypatch, fail)
    assert run(["standalone", "--data-dir", str(tmp_path)]) == 2
    assert complaint(capsys) == (
        f"magnetar: data dir {tmp_path} cannot be used: Permission denied ({tmp_path}/lock);"
        " fix it, or choose another one with --data-dir"
    )


def test_an_interrupted_command_says_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(settings: ServerSettings) -> int:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    serve_with(monkeypatch, interrupt)
    assert run(["standalone"]) == 130
    assert capsys.readouterr() == ("", "")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"magnetar {version('magnetar')}\n"


def test_magnetar_alone_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    out, err = capsys.readouterr()
    assert "standalone" in out
    assert err == ""


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["standalone", "--help"]) == 0
    out = capsys.readouterr().out
    for flag in (
        "--data-dir",
        "--host",
        "--kafka-port",
        "--http-port",
        "--nodes",
        "--config",
        "--set",
        "--log-level",
    ):
        assert flag in out


def test_config_list_as_json_has_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "list", "--output", "json"]) == 0
    rows = {row["key"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == list(SERVER_KEYS)
    assert rows["num.partitions"] == {
        "key": "num.partitions",
        "section": "Topics",
        "type": "int",
        "default": "1",
        "allowed": "1 to 10000",
        "aliases": ["defaultNumPartitions"],
        "environment": "MAGNETAR_NUM_PARTITIONS",
        "effect": True,
        "doc": SERVER_KEYS["num.partitions"].doc,
    }


def test_config_list_as_a_table_has_every_key_on_a_line_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["config", "list"]) == 0
    first_words = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.split()]
    assert set(SERVER_KEYS) <= set(first_words)


def test_help_needs_neither_the_server_nor_rich() -> None:
    script = (
        "import sys\n"
        "from magnetar.cli.main import run\n"
        "code = run(['standalone', '--help'])\n"
        "heavy = [m for m in ('rich', 'starlette', 'uvloop', 'asyncio', 'magnetar.broker') if m in"
        " sys.modules]\n"
        "sys.exit(f'heavy imports: {heavy}' if heavy else code)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
