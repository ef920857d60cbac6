"""What `magnetar clone` and `links` make of their words, before any server or source is asked."""

import time
from pathlib import Path

import pytest

from magnetar.base.errors import ConfigError
from magnetar.cli.clone import _since_ms
from magnetar.cli.main import run

NOWHERE = ("--url", "http://127.0.0.1:1")
SOURCE = "kafka://127.0.0.1:1"
PULSAR = "pulsar://127.0.0.1:1/a/b"


def test_help_says_what_each_verb_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["clone"], ["links", "list"], ["links", "cut"]):
        assert run([*words, "--help"]) == 0
        assert "--url" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("host:9092", "--topics", "x"), "is no source"),
        (("kafka://me:secret@host:9092", "--topics", "x"), "has a user in it"),
        ((SOURCE,), "--topics"),
        ((SOURCE, "--topics", "("), "is not a regular expression"),
        ((SOURCE, "--topics", "x", "--since", "yesterday"), "--since must be such as"),
        ((SOURCE, "--topics", "x", "--mask", "mask"), "MODULE:FUNCTION"),
        ((SOURCE, "--topics", "x", "--mask", "no_such_module:mask"), "cannot be loaded"),
        ((SOURCE, "--topics", "x", "--source-config", "/no/such/file"), "No such file"),
        ((SOURCE, "--topics", "x", "--source-admin", "http://127.0.0.1:1"), "for a source of Pulsar's"),
        ((PULSAR,), "--topics"),
        ((f"{PULSAR}/c", "--topics", "x"), "leave out --topics"),
        ((f"{PULSAR}/c", "--mask", "a:b"), "--mask changes records of Kafka"),
        ((f"{PULSAR}/c", "--source-admin", "host:8080"), "looks like http://host:8080"),
        ((f"{PULSAR}/c", "--source-admin", "http://me:secret@host:8080"), "without a user"),
    ],
)
def test_words_that_say_nothing_are_one_sentence(
    arguments: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["clone", *arguments, *NOWHERE]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert "secret" not in said
    assert len(said.splitlines()) == 1


def test_a_setting_that_the_source_s_client_does_not_have_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "source.properties"
    file.write_text("no.such.setting=1\nsasl.password=secret\n")
    arguments = ("clone", SOURCE, "--topics", "x", "--source-config", str(file), *NOWHERE)
    assert run([*arguments]) == 2
    said = capsys.readouterr().err
    assert "no.such.setting" in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sasl.password=secret\n", "sasl.password is no setting"),
        ("authPlugin=token\nauthParams=secret\n", "must begin with token:"),
        ("authParams=token:secret\n", "say authPlugin="),
        ("authPlugin=org.example.Kerberos\nauthParams=token:secret\n", "logs in with a token"),
        ("tlsTrustCertsFilePath=/no/such/file\n", "cannot be read"),
    ],
)
def test_settings_for_pulsar_that_say_nothing_are_one_sentence(
    text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.conf"
    file.write_text(text)
    assert run(["clone", f"{PULSAR}/c", "--source-config", str(file), *NOWHERE]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert "secret" not in said
    assert len(said.splitlines()) == 1


def test_a_time_ago_is_a_time() -> None:
    assert _since_ms("") is None
    now_ms = time.time_ns() // 1_000_000
    for text, ago_ms in (("90s", 90_000), ("15m", 900_000), ("1h", 3_600_000), ("7d", 604_800_000)):
        found = _since_ms(text)
        assert found is not None
        assert now_ms - ago_ms <= found <= time.time_ns() // 1_000_000 - ago_ms
    for bad in ("1", "h", "1w", "-1h", "1h "):
        with pytest.raises(ConfigError):
            _since_ms(bad)
