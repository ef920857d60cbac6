"""Functions where clients log in: what a function reaches is what its owner may reach, and only while it runs.

`ann` administers the tenant `acme`, `vic` the tenant `victim`, and `boss` is the super user.  `eve` may read and write
the topics of `acme/house`, and may not run functions there.
"""

import base64
import json
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import jwt
import pulsar
import pytest

from magnetar.base import landlock
from magnetar.broker.usecases.logins import WITHDRAWN
from magnetar.functions.processing import MESSAGE_ID
from magnetar.testing.server import MagnetarProcess, free_ports
from tests.integration.quiet_log import assert_quiet
from tests.integration.server.wire import Wire, eventually

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(600)]

CODE: Final = Path(__file__).parent / "code"
PATIENCE_S: Final = 120.0
HOUSE: Final = "persistent://acme/house"
SECRET_TOPIC: Final = "persistent://victim/vault/secret"
PASSWORD: Final = "variable-secret-of-the-server"  # in the server's environment


class Tenants:
    """The server, asked as each of them."""

    def __init__(self, server: MagnetarProcess, sasl: int, key: str) -> None:
        self.server = server
        self.sasl = sasl
        self._key = key

    def token(self, role: str) -> str:
        return jwt.encode({"sub": role}, self._key, "HS256")

    def ask(self, role: str, method: str, path: str, body: Any = None, bearer: str = "") -> tuple[int, str]:
        """The status, and the answer."""
        data = None if body is None else json.dumps(body).encode()
        return self._ask(role, method, path, data, "application/json", bearer)

    def _ask(
        self, role: str, method: str, path: str, data: bytes | None, kind: str, bearer: str = ""
    ) -> tuple[int, str]:
        request = urllib.request.Request(f"{self.server.http_url}/admin/{path}", data, method=method)
        request.add_header("Authorization", f"Bearer {bearer or self.token(role)}")
        request.add_header("Content-Type", kind)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def declare(self, role: str, name: str, file: str, named: str = "", **config: Any) -> tuple[int, str]:
        """Declare a function with the code of a file, which may be `named` otherwise."""
        parts = {
            'name="functionConfig"': json.dumps(config).encode(),
            f'name="data"; filename="{named or file}"': (CODE / file).read_bytes(),
        }
        body = b"".join(
            f"--b\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + content + b"\r\n"
            for head, content in parts.items()
        )
        path = f"v3/functions/acme/house/{name}"
        return self._ask(role, "POST", path, body + b"--b--\r\n", "multipart/form-data; boundary=b")

    def status(self, name: str) -> Mapping[str, Any]:
        code, text = self.ask("ann", "GET", f"v3/functions/acme/house/{name}/0/status")
        assert code == 200, text
        found: Mapping[str, Any] = json.loads(text)
        return found

    def until(self, name: str, holds: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any]:
        """The status of the first instance, once it is so."""
        ends = time.monotonic() + PATIENCE_S
        while not holds(status := self.status(name)):
            assert time.monotonic() < ends, (status, self.server.log[-3000:])
            time.sleep(0.2)
        return status

    def client(self, role: str) -> pulsar.Client:
        return pulsar.Client(
            self.server.pulsar_url,
            pulsar.AuthenticationToken(self.token(role)),
            operation_timeout_seconds=30,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    key, (sasl,) = secrets.token_hex(32), free_ports(1)
    audit = tmp_path_factory.mktemp("audit") / "audit.log"
    settings = {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{sasl}",
        "sasl.enabled.mechanisms": "PLAIN",
        "functionsWorkerEnabled": "true",
        "authenticationEnabled": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": f"data:,{key}",
        "authorizationEnabled": "true",
        "superUserRoles": "boss",
        "pipelines.worker.enabled": "false",
        "audit.log": str(audit),
        "audit.log.logins": "all",
    }
    with MagnetarProcess(settings=settings, environment={"SERVER_PASSWORD": PASSWORD}) as server:
        one = Tenants(server, sasl, key)
        for tenant, namespace, role in (("acme", "house", "ann"), ("victim", "vault", "vic")):
            body = {"adminRoles": [role], "allowedClusters": ["standalone"]}
            assert one.ask("boss", "PUT", f"v2/tenants/{tenant}", body)[0] == 204
            assert one.ask("boss", "PUT", f"v2/namespaces/{tenant}/{namespace}", {})[0] == 204
        granted = one.ask("ann", "POST", "v2/namespaces/acme/house/permissions/eve", ["produce", "consume"])
        assert granted[0] == 204
        with_vic = one.client("vic")
        with_vic.create_producer(SECRET_TOPIC).send(b"secret")
        with_vic.close()
        yield one
        for text in (server.log, audit.read_text()):
            assert_quiet(text, "magnetar-function.", PASSWORD, key, "eyJ")


@pytest.fixture(scope="module")
def thief(tenants: Tenants) -> Iterator[Callable[[str], str]]:
    """A function of ann's: what it answers to a message."""
    said = tenants.declare(
        "ann",
        "thief",
        "thief.py",
        className="thief.Thief",
        inputs=[f"{HOUSE}/orders"],
        output=f"{HOUSE}/answers",
        maxMessageRetries=1,
        deadLetterTopic=f"{HOUSE}/dead",
    )
    assert said[0] == 204, said
    tenants.until("thief", lambda one: bool(one["running"]))
    client = tenants.client("ann")
    answers = client.subscribe(f"{HOUSE}/answers", "s")
    orders = client.create_producer(f"{HOUSE}/orders")

    def ask(order: str) -> str:
        sent = orders.send(order.encode())
        while True:  # an earlier order's answer may come again: it is given at least once
            message = answers.receive(int(PATIENCE_S * 1000))
            answers.acknowledge(message)
            made_of = pulsar.MessageId.deserialize(base64.b64decode(message.properties()[MESSAGE_ID]))
            if (made_of.ledger_id(), made_of.entry_id()) == (sent.ledger_id(), sent.entry_id()):
                return str(message.data().decode())

    yield ask
    client.close()


def subscriptions_of_victim(tenants: Tenants) -> Any:
    path = "v2/persistent/victim/vault/secret/subscriptions"
    return json.loads(tenants.ask("vic", "GET", path)[1])


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("by-name", {"inputs": [SECRET_TOPIC]}),
        ("by-pattern", {"topicsPattern": "persistent://victim/vault/.*"}),
        ("by-serde", {"customSerdeInputs": {SECRET_TOPIC: "serde.IdentitySerDe"}}),
    ],
)
def test_a_function_reads_no_topic_that_its_owner_may_not_read(
    tenants: Tenants, name: str, inputs: dict[str, Any]
) -> None:
    said = tenants.declare(
        "ann",
        name,
        "plain.py",
        className="plain.process",
        output=f"{HOUSE}/{name}",
        subscriptionPosition="Earliest",
        **inputs,
    )
    assert said[0] == 204, said
    status = tenants.until(name, lambda one: bool(one["error"]))
    assert (status["running"], status["numReceived"]) == (False, 0)
    assert status["error"].startswith("the function cannot subscribe to its inputs: "), status
    assert "Traceback" not in status["error"]
    assert subscriptions_of_victim(tenants) == []
    tenants.ask("ann", "DELETE", f"v3/functions/acme/house/{name}")


def test_a_function_that_names_anothers_subscription_does_not_drop_it(tenants: Tenants) -> None:
    topic = (
        "persistent://victim/side/orders"  # a function by a pattern of the other namespace must not find it
    )
    assert tenants.ask("boss", "PUT", "v2/namespaces/victim/side", {})[0] == 204
    client = tenants.client("vic")
    client.subscribe(topic, "of-vic").close()
    client.close()
    declared: dict[str, Any] = {"inputs": [topic], "subName": "of-vic", "cleanupSubscription": True}
    assert tenants.declare("ann", "dropper", "plain.py", className="plain.process", **declared)[0] == 204
    tenants.until("dropper", lambda one: bool(one["error"]))
    assert tenants.ask("ann", "DELETE", "v3/functions/acme/house/dropper")[0] == 204
    path = "v2/persistent/victim/side/orders/subscriptions"
    assert json.loads(tenants.ask("vic", "GET", path)[1]) == ["of-vic"]


@pytest.mark.usefixtures("thief")
def test_who_triggers_a_function_has_to_have_the_rights_to_its_topics(tenants: Tenants) -> None:
    """The instance sends and reads as its owner, and so would lend them."""
    path, form = (
        "v3/functions/acme/house/thief/trigger",
        'Content-Disposition: form-data; name="data"\r\n\r\n',
    )
    body, kind = f"--b\r\n{form}environment\r\n--b--\r\n".encode(), "multipart/form-data; boundary=b"
    permissions = "v2/namespaces/acme/house/permissions/joe"
    for actions, status in ((["functions"], 401), (["functions", "produce"], 401)):
        assert tenants.ask("ann", "POST", permissions, actions)[0] == 204
        assert tenants._ask("joe", "POST", path, body, kind)[0] == status
    assert tenants.ask("ann", "POST", permissions, ["functions", "produce", "consume"])[0] == 204
    assert tenants._ask("joe", "POST", path, body, kind)[0] == 200
    assert tenants.ask("ann", "DELETE", permissions)[0] == 204


def test_a_function_writes_to_no_topic_that_its_owner_may_not_write_to(
    tenants: Tenants, thief: Callable[[str], str]
) -> None:
    client = tenants.client("ann")
    orders = client.create_producer(f"{HOUSE}/orders")
    before = tenants.status("thief")["numUserExceptions"]
    orders.send(b"publish persistent://victim/vault/stolen")
    status = tenants.until("thief", lambda one: one["numUserExceptions"] > before)
    assert "uthorization" in status["latestUserExceptions"][-1]["exceptionString"]
    client.close()
    topics = json.loads(tenants.ask("vic", "GET", "v2/persistent/victim/vault")[1])
    assert topics == [SECRET_TOPIC]


def test_functions_are_for_those_with_the_right(tenants: Tenants, thief: Callable[[str], str]) -> None:
    which = "v3/functions/acme/house/thief"
    for role in ("eve", "vic"):
        assert tenants.declare(role, "other", "plain.py", className="plain.process", inputs=["x"])[0] in (
            401,
            403,
        )
        for method, path in (
            ("GET", which),
            ("GET", f"{which}/status"),
            ("GET", f"{which}/stats"),
            ("GET", f"{which}/state/k"),
            ("GET", "v3/functions/acme/house"),
            ("POST", f"{which}/stop"),
            ("POST", f"{which}/restart"),
            ("DELETE", which),
        ):
            assert tenants.ask(role, method, path)[0] in (401, 403), (role, method, path)
        # Asked before megabytes are taken: what is sent is no form.
        for method in ("POST", "PUT"):
            assert tenants.ask(role, method, which, {})[0] in (401, 403)
    assert tenants.ask("ann", "PUT", which, {})[0] == 400


def test_the_token_of_a_function_is_of_use_at_no_other_door(
    tenants: Tenants, thief: Callable[[str], str]
) -> None:
    token = base64.b64decode(thief("token")).decode()
    assert token.startswith("magnetar-function.")
    assert tenants.ask("", "GET", "v2/namespaces/acme", bearer=token)[0] == 401
    for user in ("ann", "acme/house"):
        with pytest.raises(AssertionError), Wire(tenants.sasl) as wire:
            wire.log_in(user, f"token:{token}")
    for path in (f"v3/functions/acme/house/{end}" for end in ("thief", "thief/status", "thief/stats")):
        assert token not in tenants.ask("ann", "GET", path)[1]


def test_a_function_gets_nothing_of_the_servers_environment(
    tenants: Tenants, thief: Callable[[str], str]
) -> None:
    seen = thief("environment").split()
    assert "PATH" in seen
    assert not {"SERVER_PASSWORD", "HOME", "USER"} & set(seen)
    assert not any("token" in one.lower() or "secret" in one.lower() for one in seen)
    token = base64.b64decode(thief("token"))
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                content = (process / name).read_bytes()
            except OSError:
                continue
            assert token not in content, process


def test_a_file_of_code_stands_for_no_module_of_the_runner(tenants: Tenants) -> None:
    """It would run before the limit on memory does."""
    said = tenants.declare(
        "ann", "shadow", "plain.py", "logging.py", className="logging.process", inputs=[f"{HOUSE}/x"]
    )
    assert said[0] == 204, said
    status = tenants.until("shadow", lambda one: bool(one["error"]))
    assert status["error"] == "the module logging has no process"
    assert tenants.ask("ann", "DELETE", "v3/functions/acme/house/shadow")[0] == 204


def test_a_function_ends_when_its_owner_may_run_none_any_more(tenants: Tenants) -> None:
    """By a grant, and by the administration of the tenant."""
    permissions, tenant = "v2/namespaces/acme/house/permissions/kim", "v2/tenants/acme"
    both = {"adminRoles": ["ann", "kim"], "allowedClusters": ["standalone"]}

    def give() -> None:
        assert tenants.ask("ann", "POST", permissions, ["functions", "consume", "produce"])[0] == 204

    def take() -> None:
        assert tenants.ask("ann", "POST", permissions, ["consume", "produce"])[0] == 204

    def administer(yes: bool) -> None:
        roles = {**both, "adminRoles": both["adminRoles"] if yes else ["ann"]}
        assert tenants.ask("boss", "POST", tenant, roles)[0] == 204

    give()
    declared: dict[str, Any] = {"className": "plain.process", "inputs": [f"{HOUSE}/kims"]}
    assert tenants.declare("kim", "kims", "plain.py", **declared)[0] == 204
    for give_right, take_right in ((give, take), (partial(administer, True), partial(administer, False))):
        give_right()
        tenants.until("kims", lambda one: bool(one["running"]))
        take_right()
        status = tenants.until("kims", lambda one: not one["running"])
        assert status["error"] == "the instance cannot run: User:kim may not run functions in acme/house"
    assert tenants.ask("ann", "DELETE", permissions)[0] == 204
    assert tenants.ask("ann", "DELETE", "v3/functions/acme/house/kims")[0] == 204


@pytest.mark.skipif(not landlock.version(), reason="the kernel has no Landlock")
def test_a_function_opens_no_file_of_the_server(
    tenants: Tenants, thief: Callable[[str], str], tmp_path: Path
) -> None:
    """With the key of the server's tokens it would have all rights, and a segment has what is in a topic."""
    data, mine = tenants.server.data_dir, tmp_path / "readable-by-the-account"
    mine.write_text("of another program")
    own = next(one for one in (data / "functions").glob("*-0") if (one / "work" / "thief.py").exists())
    others = [one for one in data.rglob("*") if one.is_file() and not one.is_relative_to(own / "work")]
    assert {"journal", "metadata.sqlite", "functions"} <= {one.relative_to(data).parts[0] for one in others}
    process = f"/proc/{tenants.server.pid}"
    refused = [
        *(f"open {one}" for one in (*others, mine, "/etc/shadow", f"{process}/environ", f"{process}/mem")),
        *(f"open {process}/{way}{data}/metadata.sqlite" for way in ("root", "cwd")),
        *(f"change {one}" for one in (*others, own / "new", mine, tmp_path / "new")),
        f"link {mine}",
        f"end {tenants.server.pid}",
    ]
    for one in refused:
        assert thief(one) == "no permission", one
    assert thief(f"shell cat {mine} {data}/metadata.sqlite") == "."
    assert thief("open /etc/hosts").startswith("opened")
    assert thief("change own.txt") == "changed"
    assert thief("temporary") == "in its folder"
    assert thief("shell echo yes") == "yes\n."
    assert mine.read_text() == "of another program"


def test_what_a_deleted_function_leaves_behind_has_no_rights(tenants: Tenants) -> None:
    before = set((tenants.server.data_dir / "functions").iterdir())
    said = tenants.declare(
        "ann",
        "leaver",
        "thief.py",
        className="thief.Thief",
        inputs=[f"{HOUSE}/leave"],
        output=f"{HOUSE}/left",
    )
    assert said[0] == 204, said
    tenants.until("leaver", lambda one: bool(one["running"]))
    (folder,) = set((tenants.server.data_dir / "functions").iterdir()) - before
    notes = folder / "work" / "notes"
    notes.touch()
    client = tenants.client("ann")
    left, orders = client.subscribe(f"{HOUSE}/left", "s"), client.create_producer(f"{HOUSE}/leave")
    orders.send(f"daemon {HOUSE}/own {notes}".encode())
    assert left.receive(int(PATIENCE_S * 1000)).data() == b"started"
    eventually(lambda: "subscribed" in notes.read_text(), "the daemon did not start", PATIENCE_S)
    producer = client.create_producer(f"{HOUSE}/own")
    producer.send(b"while it runs")
    eventually(lambda: "read while it runs" in notes.read_text(), "it reads as the function", PATIENCE_S)
    assert tenants.ask("ann", "POST", "v3/functions/acme/house/leaver/stop")[0] == 204
    tenants.until("leaver", lambda one: not one["running"])
    eventually(lambda: WITHDRAWN in tenants.server.log, tenants.server.log, PATIENCE_S)
    producer.send(b"after its end")
    checking = client.subscribe(f"{HOUSE}/own", "checking", initial_position=pulsar.InitialPosition.Earliest)
    for text in (b"while it runs", b"after its end"):
        assert checking.receive(int(PATIENCE_S * 1000)).data() == text
    stats = json.loads(tenants.ask("ann", "GET", "v2/persistent/acme/house/own/stats")[1])
    assert stats["subscriptions"]["daemon"]["consumers"] == []
    assert "after its end" not in notes.read_text()
    client.close()
    assert tenants.ask("ann", "DELETE", "v3/functions/acme/house/leaver")[0] == 204
    eventually(lambda: not folder.exists(), "its folder stays", PATIENCE_S)  # and so the daemon ends
