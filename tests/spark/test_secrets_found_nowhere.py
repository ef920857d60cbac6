"""Every secret that a secured server, its commands and its pipelines use is used, right and wrong, and then looked for
everywhere: data folder, logs, audit log, what commands say, answers over HTTP and at Kafka's port, metrics, Spark's
event log, checkpoints, command lines and environments of all processes.
"""

import base64
import json
import logging
import os
import re
import ssl
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    ConfigResource,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from magnetar.base.job_token import PIPELINE, PREFIXES
from magnetar.wire.kafka.messages.create_delegation_token import CreateDelegationTokenRequest
from magnetar.wire.kafka.messages.describe_delegation_token import DescribeDelegationTokenRequest
from magnetar.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from tests.integration.server.wire import Wire
from tests.spark.pipelines import Processes
from tests.spark.replicated import replicator
from tests.spark.secured import Secured

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

# What holds secrets, and is for the server's account alone.
VAULT = {"worker-token", "secrets.key", "security"}
SCRAM, WRONG, SIGNED, STORE, IN_URL, WEBHOOK, BY_STDIN, BY_FILE, BY_COMMAND, REPLICA, CLOUD = (
    f"{name}-Zk3qPv9xT7"
    for name in (
        "scram",
        "wrong",
        "delegation",
        "store",
        "url",
        "webhook",
        "stdin",
        "file",
        "command",
        "replica",
        "cloud",
    )
)
COMMAND = [sys.executable, "-c", "from magnetar.cli.main import main; main()"]
_TOKEN = re.compile(rb"magnetar-pipeline\.\d+\.[0-9a-f]{16}")  # of any pipeline, whichever was made when


def forms(secret: bytes) -> set[bytes]:
    """How a secret may be written: texts may have it anywhere, so a form in base64 is what does not depend on that."""
    found = {
        secret,
        secret.hex().encode(),
        quote(secret).encode(),
        json.dumps(secret.decode("latin-1")).encode()[1:-1],
    }
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + secret)
        found.add(coded[4 if shift else 0 : len(coded) // 4 * 4 - 4])
    return found


class Used:
    """A server, all that it was told in confidence, by name, and all that it and its processes leave behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events = folder / "events"
        self.events.mkdir()
        (folder / "spark").mkdir()
        (folder / "spark" / "spark-defaults.conf").write_text(
            f"spark.eventLog.enabled true\nspark.eventLog.dir {self.events.as_uri()}\nspark.eventLog.compress false\n"
        )
        config = self.config = folder / "server.properties"
        config.write_text(f"delegation.token.secret.key={SIGNED}\naudit.log.logins=all\n")
        self.server = Secured(
            folder / "data",
            {"SPARK_CONF_DIR": str(folder / "spark")},
            arguments=["--config", str(config), "--log-level", "debug"],
            **{"pipelines.table.roots": "s3://lake"},
        )
        self.secrets: dict[str, bytes] = {
            name: text.encode()
            for name, text in {
                "password of SCRAM": SCRAM,
                "wrong password": WRONG,
                "key of delegation tokens": SIGNED,
                "key of an object store": STORE,
                "password in an address": IN_URL,
                "value of a key that is called a token": WEBHOOK,
                "password of a replicator": REPLICA,
                "keys of a replicator to AWS": CLOUD,
                "password from standard input": BY_STDIN,
                "password from a file": BY_FILE,
                "password from a command": BY_COMMAND,
                "token of the administrator": self.server.token.strip(),
                "token of alice": self.server.token_of("alice"),
            }.items()
        }
        data = self.server.server.data_dir
        for name in ("worker-token", "secrets.key", "security/token.key"):
            self.secrets[name] = (data / name).read_bytes().strip()
        self.shown: dict[str, bytes] = {}
        # Of whoever calls the commands: no part of what is looked through.
        self.home = tempfile.TemporaryDirectory(prefix="secrets-home-")

    # --- use

    def log_in(self) -> None:
        """At every door, by what is right and by what is wrong."""
        server = self.server
        user = UserScramCredentialUpsertion(
            "bob", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), SCRAM.encode()
        )
        server.admin.alter_user_scram_credentials([user])["bob"].result(20)
        for password, mechanism, name in (
            (SCRAM, "SCRAM-SHA-256", "bob"),
            (WRONG, "SCRAM-SHA-256", "bob"),
            (WRONG, "PLAIN", "bob"),
            ("bob", "PLAIN", WRONG),
            (f"token:{server.token_of('alice')}x", "PLAIN", "alice"),
        ):
            failures: list[object] = []
            more = {"sasl.mechanism": mechanism, "sasl.username": name, "sasl.password": password}
            asked = confluent_kafka.Producer(
                {**server.kafka(), **more, "error_cb": failures.append, "log_level": 0}
            )
            for _ in range(100):
                asked.poll(0.05)
                if failures:
                    break
                try:
                    asked.list_topics(timeout=0.5)
                except confluent_kafka.KafkaException:
                    continue
                break
            assert bool(failures) is (password != SCRAM), (mechanism, failures)
        for token in (server.token.strip(), server.token_of("alice") + "x", WRONG):
            assert server.get("/admin/v2/clusters", token)[0] == (
                200 if token == server.token.strip() else 401
            )
        silent = logging.getLogger("silent")
        silent.setLevel(logging.CRITICAL + 1)
        client = server.pulsar()
        client.create_producer("by-pulsar").send(b"x")
        client.close()

    def take_a_delegation_token(self) -> None:
        """Made and described at Kafka's port; only its owner is ever shown what it is made of."""
        server = self.server
        trusted = ssl.create_default_context(cafile=server.ca)
        with Wire(int(server.kafka()["bootstrap.servers"].rpartition(":")[2])) as wire:
            wire.socket = trusted.wrap_socket(wire.socket, server_hostname="localhost")
            assert wire.ask("sasl_handshake", 1, SaslHandshakeRequest("PLAIN")).error_code == 0
            shown = f"\0token\0token:{server.token_of('alice')}".encode()
            assert wire.ask("sasl_authenticate", 2, SaslAuthenticateRequest(shown)).error_code == 0
            made = wire.ask("create_delegation_token", 3, CreateDelegationTokenRequest(None, None, [], -1))
            assert made.error_code == 0
            assert (
                wire.ask("describe_delegation_token", 3, DescribeDelegationTokenRequest(None)).error_code == 0
            )
        self.secrets["delegation token"] = base64.b64encode(bytes(made.hmac))
        self.secrets["delegation token, bare"] = bytes(made.hmac)

    def administer(self) -> None:
        """By `magnetar`'s own commands, which are looked at while they wait, and whose every word is kept."""
        key = (self.server.server.data_dir / "security" / "token.key").as_uri()
        home = Path(self.home.name)
        (home / "password").write_text(BY_FILE + "\n")
        (home / "print-password").write_text(f"#!/bin/sh\necho {BY_COMMAND}\n")
        (home / "print-password").chmod(0o700)
        self.call("users", "create", "carol", "--password-file", "-", stdin=BY_STDIN)
        self.call("users", "set-password", "carol", "--password-file", str(home / "password"))
        self.call("users", "create", "dave", "--password-command", str(home / "print-password"))
        self.call("users", "create", "dave", "--password-file", "-", stdin=WRONG, code=2)
        self.call("users", "create", "erin", "--password-file", "-", stdin=f"{WRONG}\n{WRONG}", code=2)
        self.call("users", "list", "-o", "json")
        self.call("acls", "add", "--allow-principal", "User:carol", "--topic", "from", "--operation", "read")
        self.call("acls", "list")
        self.call("permissions", "grant", "public/default", "--role", "carol", "--actions", "produce")
        self.call("permissions", "list", "public/default")
        made = self.call("tokens", "create", "--subject", "carol", "--secret-key", key, kept=False).strip()
        self.secrets["token of carol"] = made
        for verb in ("inspect", "show", "validate"):
            more = () if verb == "show" else ("--secret-key", key)
            self.call("tokens", verb, "--stdin", *more, stdin=made.decode())
            self.call("tokens", verb, "--stdin", *more, stdin=made.decode() + "x", code=0 if not more else 2)

    def call(self, *arguments: str, stdin: str = "", code: int = 0, kept: bool = True) -> bytes:
        """What a command printed; `kept` says that it is to be looked through, as all that it says otherwise is."""
        context = self.server.folder / "context.toml"
        own = {name: value for name, value in os.environ.items() if not name.startswith("MAGNETAR_")}
        with subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**own, "MAGNETAR_CONTEXT": str(context)},
        ) as process:
            what = f"{' '.join(arguments[:2])}, {len(self.shown)}"
            for part in ("cmdline", "environ"):
                seen = b""
                while not seen and process.poll() is None:  # a program that has just begun has none yet
                    seen = Path(f"/proc/{process.pid}/{part}").read_bytes()
                self.shown[f"{part} of {what}"] = seen
            printed, said = process.communicate(stdin.encode(), 60)
        assert process.returncode == code, (arguments, printed, said)
        assert arguments[1].encode() in self.shown[f"cmdline of {what}"]
        self.shown[f"{what}, what it says"] = said
        if kept:
            self.shown[f"{what}, what it prints"] = printed
        return printed

    def run_pipelines(self) -> None:
        """Some that run, and some that fail for what their secrets are for."""
        server, client = self.server, self.server.as_admin
        server.topics("from", "to")
        server.write("from", "1", "2")
        server.copy("admin", "copy", "from", "to")
        store = {"AWS_ACCESS_KEY_ID": f"id-{STORE}", "AWS_SECRET_ACCESS_KEY": STORE, "AWS_REGION": "x"}
        bad = {**store, "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ALLOW_HTTP": "true"}
        table = {"topics": "from", "trigger": "1 second"}
        client.create("kept", "table", {**table, "path": "kept", "storage_options": store})
        client.create("lost", "table", {**table, "path": "s3://lake/t", "storage_options": bad})
        source = {"subscribe": "from", "admin.url": f"http://user:{IN_URL}@127.0.0.1:1"}
        query = {"source": source, "sql": "select value from source", "sink": {"topic": "to"}}
        client.create("elsewhere", "query", query)
        client.create(
            "unknown", "query", {**query, "source": {"subscribe": "from", "webhook.token": WEBHOOK}}
        )
        server.until(lambda: server.count("to") >= 2)
        server.until(lambda: client.get("kept").status.get("rows", 0) >= 2)
        outside = replicator(
            "from",
            "127.0.0.1:1",
            "to",
            properties={"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
            credentials={"sasl.username": "replica", "sasl.password": REPLICA},
        )
        client.create("outside", "replicator", outside)
        place = {"awsRegion": "us-west-1", "awsEndpoint": "http://127.0.0.1:1"}
        keys = {"accessKey": f"id-{CLOUD}", "secretKey": CLOUD, "sessionToken": f"session-{CLOUD}"}
        clouds = ("Kinesis", "DynamoDB")
        for kind in clouds:
            cloud = {**replicator("from", "", "to"), "type": kind, "properties": place, "credentials": keys}
            client.create(kind, "replicator", cloud)
        for name in ("lost", "elsewhere", "unknown", "outside", *clouds):
            server.until_failed(name)

    def look_everywhere(self) -> None:
        """What the server answers, and what the processes are like, while all of it runs."""
        server = self.server
        status, described = server.get("/openapi.json", server.token)
        assert status == 200
        paths = [
            path
            for path, methods in json.loads(described)["paths"].items()
            if "get" in methods and "{" not in path and "/entries" not in path
        ]
        names = [row.name for row in server.as_admin.all()]
        paths += [f"/magnetar/v1/pipelines/{name}{part}" for name in names for part in ("", "/stats")]
        assert len(paths) > 20
        for path in paths:
            self.shown[path] = server.get(path, server.token)[1]
        node = ConfigResource(ConfigResource.Type.BROKER, "1")
        self.shown["DescribeConfigs"] = repr(
            {name: vars(one) for name, one in server.admin.describe_configs([node])[node].result(20).items()}
        ).encode()
        users: Any = server.admin.describe_user_scram_credentials()
        self.shown["DescribeUserScramCredentials"] = repr(
            {name: vars(one) for name, one in users.result(20).items()}
        ).encode()
        for pid, command in Processes.below(server.server.pid).items():
            self.shown[f"command line of {pid}"] = command.encode()
            self.shown[f"environment of {pid}"] = Path(f"/proc/{pid}/environ").read_bytes()
        assert any("java" in text.decode(errors="replace") for text in self.shown.values())

    # --- what is left

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Everything below the folder, but for what holds secrets: that is closed to other accounts."""
        data = self.server.server.data_dir
        for file in self.folder.rglob("*"):
            inside = file.relative_to(data).parts[0] if file.is_relative_to(data) and file != data else ""
            if not file.is_file() or file == self.config:
                continue
            if inside in VAULT:
                mode = stat.S_IMODE(file.stat().st_mode)
                assert not mode & 0o077 or file.name == "ca.pem", (file, oct(mode))
                continue
            yield str(file), file.read_bytes().rstrip(b"\0")  # most of a journal file is space for more


def found(places: Mapping[str, bytes], secrets: Mapping[str, bytes]) -> list[tuple[str, str]]:
    """(secret, place) of each that can be read somewhere."""
    wanted = {name: forms(secret) for name, secret in secrets.items()}
    return [
        (name, place)
        for place, content in places.items()
        for name, texts in wanted.items()
        if any(text in content for text in texts)
    ] + [("token of an owner", place) for place, content in places.items() if _TOKEN.search(content)]


def test_no_secret_can_be_read_anywhere(tmp_path: Path) -> None:
    used = Used(tmp_path)
    try:
        used.log_in()
        used.take_a_delegation_token()
        used.administer()
        used.run_pipelines()
        used.look_everywhere()
        server = used.server.server
        used.shown["log"] = server.log.encode()
        used.shown |= dict(used.files())
        server.kill()  # what was not written yet is in no file then: look again after a start and a stop in peace
        server.restart()
        used.shown |= {f"{place}, later": content for place, content in used.files()}
    finally:
        used.server.close()
        used.home.cleanup()
    used.shown |= {f"{place}, at the end": content for place, content in used.files()}
    used.shown["log"] += used.server.server.log.encode()
    for place in ("audit.log", "worker.log", "metadata.sqlite", "events"):
        assert any(place in one for one in used.shown), f"{place} was looked at"
    hits = found(used.shown, used.secrets)
    assert hits == [], hits


def test_what_is_looked_for_is_found() -> None:
    secret = b"store-Zk3qPv9xT7"
    for shift in range(4):
        for text in (
            secret,
            b"x" * shift + secret + b"y",
            base64.b64encode(b"x" * shift + secret + b"yz"),
            secret.hex().encode(),
        ):
            assert found({"here": text}, {"it": secret}) == [("it", "here")], text
    assert found({"here": b"store"}, {"it": secret}) == []
    assert found({"here": f"{PREFIXES[PIPELINE]}1.{'0' * 64}.p".encode()}, {}) == [
        ("token of an owner", "here")
    ]
