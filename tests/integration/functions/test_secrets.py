"""Secrets of functions, given by the real pulsar-admin: the function has them, and nothing of the server shows them."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.functions.worker import CODE, SETTINGS, Worker, client_of, texts
from tests.integration.java_tools import needs_java, run_pulsar_shell

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(600), *needs_java]

VALUE = "a-well-kept-secret"
WHICH = "--tenant public --namespace default --name secretive"


def _processes() -> list[Path]:
    return [one for one in Path("/proc").iterdir() if one.name.isdigit()]


def _shows(process: Path, text: str) -> bool:
    """Whether the command line or the environment of a process has the text."""
    try:
        return text.encode() in (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    except OSError:  # it has ended
        return False


def _holding(folder: Path, text: str) -> list[Path]:
    """The files that have the text."""
    return [one for one in folder.rglob("*") if one.is_file() and text.encode() in one.read_bytes()]


def test_function_has_its_secrets_and_nothing_shows_them(tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = {**SETTINGS, "replicators.keystore.environment": "public/default:FN_*"}
    environment = {"FN_KEY": "in-the-environment"}
    with MagnetarProcess(settings=settings, data_dir=data, environment=environment) as server:
        worker = Worker(server)
        said = f'\'{{"password":"{VALUE}","key":{{"path":"environment","key":"FN_KEY"}}}}\''
        made, shown = run_pulsar_shell(
            server,
            [
                f"admin functions create {WHICH} --py {CODE / 'secretive.py'} --classname secretive.Secretive"
                f" --inputs questions --output answers --secrets {said}",
                f"admin functions get {WHICH}",
            ],
        )
        assert "Created successfully" in made
        assert json.loads(shown[shown.index("{") :])["secrets"] == {
            "password": {"path": "sealed"},
            "key": {"path": "environment"},
        }
        worker.until_running("secretive")
        with client_of(server) as client:
            output, producer = client.subscribe("answers", "s"), client.create_producer("questions")
            for name, value in (("password", VALUE), ("key", "in-the-environment")):
                producer.send(name.encode())
                assert texts(output, 1) == [hashlib.sha256(value.encode()).hexdigest()]
            producer.send(b"nothing")
            assert texts(output, 1) == ["none"]
        assert not any(_shows(one, VALUE) for one in _processes() if one.name != str(os.getpid()))
        for place in ("secretive", "secretive/status", "secretive/stats"):
            assert VALUE not in str(worker.ask(place))
        assert not _holding(data, VALUE)
    assert _holding(data, "secretive"), "the declaration is there"
    assert not _holding(data, VALUE)
