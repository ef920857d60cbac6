"""A server whose Pulsar clients and HTTP clients show a user and a password."""

import base64
import logging
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from magnetar.server.watched_files import LOOK_INTERVAL_S
from magnetar.testing.server import MagnetarProcess
from tests.integration.http_answers import ask
from tests.integration.quiet_log import assert_quiet

pytestmark = pytest.mark.clients
PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProviderBasic"
# Both have the password `secret`: by `openssl passwd -apr1`, and by crypt.
PASSWORDS = "admin:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\nalice:ESbinRWkipLcY\n"
WRONG = [("admin", "wrong"), ("mallory", "secret"), ("admin", "")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MagnetarProcess]:
    file = tmp_path_factory.mktemp("passwords") / "htpasswd"
    file.write_text(PASSWORDS)
    settings = {
        "authenticationEnabled": "true",
        "authenticationProviders": PROVIDER,
        "basicAuthConf": f"file://{file}",
        "authorizationEnabled": "true",
        "superUserRoles": "admin",
    }
    with MagnetarProcess(settings=settings) as one:
        yield one
        assert_quiet(one.log, "secret")


def client(url: str, user: str, password: str, timeout_s: int = 10) -> pulsar.Client:
    silent = logging.getLogger("pulsar-client")
    silent.setLevel(logging.CRITICAL)
    shown = pulsar.AuthenticationBasic(user, password)
    return pulsar.Client(url, shown, operation_timeout_seconds=timeout_s, logger=silent)


def status(server: MagnetarProcess, path: str, user: str, password: str) -> int:
    shown = base64.b64encode(f"{user}:{password}".encode()).decode()
    return ask(server.http_url + path, {"authorization": f"Basic {shown}"})[0]


@pytest.mark.parametrize("by", ["pulsar_url", "http_url"])
def test_user_with_the_password_produces_and_consumes(server: MagnetarProcess, by: str) -> None:
    one = client(getattr(server, by), "admin", "secret")
    consumer = one.subscribe(f"shown-{by}", "s")
    one.create_producer(f"shown-{by}").send(b"hello")
    assert consumer.receive(10_000).data() == b"hello"
    one.close()


def test_user_is_the_role(server: MagnetarProcess) -> None:
    alice = client(server.pulsar_url, "alice", "secret")
    with pytest.raises(pulsar.AuthorizationError):
        alice.create_producer("denied")
    alice.close()
    assert status(server, "/admin/v2/tenants", "admin", "secret") == 200
    assert status(server, "/admin/v2/tenants", "alice", "secret") == 401
    assert status(server, "/admin/v2/clusters", "alice", "secret") == 200


def test_program_that_waits_to_be_asked_for_a_password_is_asked(server: MagnetarProcess) -> None:
    where = server.http_url + "/admin/v2/tenants"
    keys = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    keys.add_password(None, server.http_url, "admin", "secret")
    opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(keys))
    with opener.open(where, timeout=20) as answer:
        assert answer.status == 200


@pytest.mark.parametrize(("user", "password"), WRONG)
def test_others_are_refused(server: MagnetarProcess, user: str, password: str) -> None:
    one: Any = client(server.pulsar_url, user, password, timeout_s=3)
    with pytest.raises(pulsar.PulsarException):
        one.create_producer("refused")
    one.close()
    assert status(server, "/admin/v2/clusters", user, password) == 401


def test_a_file_that_changes_holds_for_the_next_login(tmp_path: Path) -> None:
    file = tmp_path / "htpasswd"
    file.write_text(PASSWORDS)
    settings = {
        "authenticationEnabled": "true",
        "authenticationProviders": PROVIDER,
        "basicAuthConf": str(file),
    }
    with MagnetarProcess(settings=settings) as server:
        one = client(server.pulsar_url, "alice", "secret")
        producer = one.create_producer("kept")
        assert status(server, "/admin/v2/clusters", "alice", "secret") == 200
        file.write_text(PASSWORDS.replace("alice", "carol"))
        until_s = time.monotonic() + 5 * LOOK_INTERVAL_S
        while status(server, "/admin/v2/clusters", "carol", "secret") != 200:
            assert time.monotonic() < until_s, "the new file is not read"
            time.sleep(0.1)
        assert status(server, "/admin/v2/clusters", "alice", "secret") == 401
        producer.send(b"its connection goes on")
        file.write_text("nonsense")
        while "the passwords that were there before stay" not in server.log:
            assert time.monotonic() < until_s + 5 * LOOK_INTERVAL_S, "nothing is said"
            time.sleep(0.1)
        assert status(server, "/admin/v2/clusters", "carol", "secret") == 200
        one.close()
        assert_quiet(server.log, "$apr1$")
