"""`magnetar users`, `acls` and `permissions` at a server with `--secure`, and what its clients may do then."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.base.contexts import Context, Contexts, write_contexts
from magnetar.server.token_tool import make_token
from magnetar.testing.server import MagnetarProcess
from tests.warm_starts import run_command

COMMAND = [sys.executable, "-c", "from magnetar.cli.main import main; main()"]
PASSWORD = "correct horse, battery"


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(arguments=["--secure"], host=None) as one:
        yield one


@pytest.fixture(scope="module")
def folder(server: MagnetarProcess) -> Path:
    return server.data_dir / "security"


def run(context: Path, *arguments: str, stdin: str = "", code: int = 0) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAGNETAR_")}
    done = run_command(*arguments, environment={**kept, "MAGNETAR_CONTEXT": str(context)}, stdin=stdin)
    assert done.returncode == code, done.stdout + done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def said(context: Path, *arguments: str) -> Any:
    return json.loads(run(context, *arguments, "-o", "json").stdout)


def complaint(context: Path, *arguments: str, code: int) -> str:
    (line,) = run(context, *arguments, code=code).stderr.splitlines()
    assert line.startswith("magnetar: ")
    return line


def login(server: MagnetarProcess, folder: Path, user: str, password: str, mechanism: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": f"localhost:{server.ports[0]}",
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": str(folder / "ca.pem"),
        "log_level": 0,
    }


def comes_in(settings: dict[str, Any]) -> bool:
    try:
        AdminClient(settings).list_topics(timeout=3)
    except confluent_kafka.KafkaException:
        return False
    return True


def of_alice(server: MagnetarProcess, folder: Path, place: Path) -> Path:
    """The context of a client with a token of her own, and without rights."""
    (place / "token").write_text(make_token("alice", "", (folder / "token.key").as_uri(), None, None, []))
    file = place / "alice.toml"
    url, brokers = f"https://localhost:{server.http_port}", f"localhost:{server.ports[0]}"
    one = Context(url, str(folder / "ca.pem"), str(place / "token"), kafka=brokers)
    write_contexts(file, Contexts({"alice": one}, "alice"))
    return file


@pytest.mark.clients
def test_a_user_is_made_listed_changed_and_deleted(
    server: MagnetarProcess, folder: Path, tmp_path: Path
) -> None:
    context = folder / "context.toml"
    password = tmp_path / "password"
    password.write_text(PASSWORD + "\n")
    run(context, "users", "create", "carol", "--password-file", str(password))
    assert said(context, "users", "list") == [
        {"name": "carol", "mechanisms": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}}
    ]
    assert "carol" in run(context, "users", "list", "carol").stdout
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert comes_in(login(server, folder, "carol", PASSWORD, mechanism))
        assert not comes_in(login(server, folder, "carol", "another", mechanism))
    run(
        context, "users", "set-password", "carol", "--mechanism", "scram-sha-512", "--iterations", "4096",
        "--password-file", "-", stdin="another\n",
    )  # fmt: skip
    assert comes_in(login(server, folder, "carol", "another", "SCRAM-SHA-512"))
    assert not comes_in(login(server, folder, "carol", PASSWORD, "SCRAM-SHA-512"))
    assert comes_in(login(server, folder, "carol", PASSWORD, "SCRAM-SHA-256"))
    run(context, "users", "delete", "carol", "--mechanism", "SCRAM-SHA-256")
    assert said(context, "users", "list", "carol") == [
        {"name": "carol", "mechanisms": {"SCRAM-SHA-512": 4096}}
    ]
    run(context, "users", "delete", "carol")
    assert said(context, "users", "list") == []
    assert not comes_in(login(server, folder, "carol", "another", "SCRAM-SHA-512"))


def test_a_password_comes_from_a_command_or_the_terminal_and_is_no_argument(folder: Path) -> None:
    context = folder / "context.toml"
    run(
        context,
        "users",
        "create",
        "dave",
        "--password-command",
        "echo hidden",
        "--mechanism",
        "SCRAM-SHA-256",
    )
    assert said(context, "users", "list", "dave")[0]["mechanisms"] == {"SCRAM-SHA-256": 8192}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAGNETAR_")}
    for second, code, why in (("y", 2, "are not the same"), ("x", 0, "logs in by SCRAM-SHA-256 with it")):
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [*COMMAND, "users", "set-password", "dave"],
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.PIPE,
            start_new_session=True,  # without a terminal of its own getpass asks at standard input
            env={**kept, "MAGNETAR_CONTEXT": str(context)},
        ) as process:
            os.close(theirs)
            assert process.stderr is not None
            for prompt, typed in ((b"Password: ", "x"), (b"The same again: ", second)):
                asked = b""
                while not asked.endswith(prompt):  # what is typed before that is thrown away
                    more = os.read(process.stderr.fileno(), 1)
                    assert more, asked
                    asked += more
                os.write(ours, f"{typed}\n".encode())
            _, errors = process.communicate(timeout=60)
        os.close(ours)
        assert (process.returncode, why in errors.decode()) == (code, True), errors
    run(context, "users", "delete", "dave")


def test_what_cannot_be_done_with_users_is_one_sentence(
    server: MagnetarProcess, folder: Path, tmp_path: Path
) -> None:
    context = folder / "context.toml"
    run(context, "users", "create", "erin", "--password-command", "echo x")
    create = ("users", "create", "fred")
    empty, long = tmp_path / "empty", tmp_path / "long"
    empty.write_text("\n")
    long.write_text("x" * 4097)
    for arguments, code, why in (
        (("users", "create", "erin", "--password-command", "echo x"), 2, "there is a user 'erin' already"),
        (("users", "delete", "fred"), 2, "there is no user 'fred'"),
        (("users", "set-password", "fred"), 2, "there is no user 'fred'"),
        (("users", "delete", "fred", "--mechanism", "SCRAM-SHA-256"), 1, "RESOURCE_NOT_FOUND"),
        ((*create, "--mechanism", "PLAIN"), 2, "SCRAM-SHA-256 or SCRAM-SHA-512"),
        ((*create, "--iterations", "10"), 2, "4096"),
        ((*create, "--password-file", str(tmp_path / "missing")), 2, "No such file"),
        ((*create, "--password-file", str(empty)), 2, "one line"),
        ((*create, "--password-file", str(long)), 2, "one line"),
        ((*create, "--password-command", "printf 'a\\nb'"), 2, "one line"),
        ((*create, "--password-command", "printf '\\377'"), 2, "no text"),
        ((*create, "--password-command", "false"), 2, "the password's command failed"),
        ((*create, "--password-file", "x", "--password-command", "y"), 2, "keep one"),
        (create, 2, "no terminal"),
        (("users", "list", "--bootstrap-server", "nowhere"), 1, "is not host:port"),
    ):
        assert why in complaint(context, *arguments, code=code)
    alice = of_alice(server, folder, tmp_path)
    assert "CLUSTER_AUTHORIZATION_FAILED" in complaint(alice, "users", "list", code=1)
    assert "CLUSTER_AUTHORIZATION_FAILED" in complaint(alice, "acls", "list", code=1)
    rule = ("--allow-principal", "User:alice", "--topic", "t")
    assert "CLUSTER_AUTHORIZATION_FAILED" in complaint(alice, "acls", "add", *rule, code=1)
    assert "CLUSTER_AUTHORIZATION_FAILED" in complaint(alice, "acls", "remove", *rule, code=1)
    assert "not authorized" in complaint(alice, "permissions", "list", "public/default", code=1)
    grant = ("permissions", "grant", "public/default", "--role", "alice", "--actions", "produce")
    assert "not authorized" in complaint(alice, *grant, code=1)
    run(context, "users", "delete", "erin")


@pytest.mark.clients
def test_rules_are_added_listed_and_removed_and_hold(
    server: MagnetarProcess, folder: Path, tmp_path: Path
) -> None:
    context = folder / "context.toml"
    token = make_token("bob", "", (folder / "token.key").as_uri(), None, None, [])
    bob = login(server, folder, "bob", f"token:{token}", "PLAIN")

    def wrote() -> str:
        producer = confluent_kafka.Producer({**bob, "message.timeout.ms": 5000})
        errors: list[str] = []
        producer.produce(
            "of-bob", b"x", on_delivery=lambda error, _: errors.append(error.name() if error else "")
        )
        producer.flush(10)
        return errors[0]

    assert wrote() == "TOPIC_AUTHORIZATION_FAILED"
    who = ("--allow-principal", "User:bob")
    added = said(context, "acls", "add", *who, "--producer", "--topic", "of-bob")
    assert [(one["operation"], one["name"]) for one in added] == [
        ("Write", "of-bob"), ("Create", "of-bob"), ("Describe", "of-bob"),
    ]  # fmt: skip
    assert wrote() == ""
    assert said(context, "acls", "list", "--topic", "of-bob") == added
    assert said(context, "acls", "list", "--principal", "User:bob") == added
    assert said(context, "acls", "list", "--principal", "User:nobody") == []
    run(
        context,
        "acls",
        "add",
        *who,
        "--topic",
        "of",
        "--resource-pattern-type",
        "prefixed",
        "--operation",
        "read",
    )
    run(
        context, "acls", "add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--topic", "of-bob"
    )
    assert len(said(context, "acls", "list", "--topic", "of-bob", "--resource-pattern-type", "match")) == 5
    assert "prefixed" in run(context, "acls", "list").stdout
    one = ("--topic", "of-bob", "--operation", "Write")
    assert len(said(context, "acls", "remove", *who, *one)) == 1
    assert wrote() == "TOPIC_AUTHORIZATION_FAILED"
    assert said(context, "acls", "remove", *who, *one) == []
    everything = ("--topic", "of-bob", "--resource-pattern-type", "any", "--force")
    assert len(said(context, "acls", "remove", *everything)) == 3
    consumer = ("--consumer", "--topic", "of", "--group", "g", "--resource-pattern-type", "prefixed")
    assert {one["type"] for one in said(context, "acls", "add", *who, *consumer)} == {"topic", "group"}
    assert {one["operation"] for one in said(context, "acls", "remove", *who, *consumer)} == {
        "Read",
        "Describe",
    }
    assert said(context, "acls", "list", "--principal", "User:bob") == []


def test_permissions_are_granted_listed_and_revoked(
    server: MagnetarProcess, folder: Path, tmp_path: Path
) -> None:
    context = folder / "context.toml"
    run(
        context,
        "permissions",
        "grant",
        "public/default",
        "--role",
        "alice",
        "--role",
        "a b",
        "--actions",
        "produce,consume",
    )
    of_alice(server, folder, tmp_path)
    assert said(context, "permissions", "list", "public/default")["roles"] == {
        "alice": ["produce", "consume"], "a b": ["produce", "consume"],
    }  # fmt: skip
    run(context, "permissions", "grant", "public/default", "--role", "alice", "--actions", "produce")
    run(context, "permissions", "revoke", "public/default", "--role", "a b")
    run(
        context, "permissions", "grant", "public/default", "--subscription", "s", "--role", "x", "--role", "y"
    )
    run(context, "permissions", "revoke", "public/default", "--subscription", "s", "--role", "y")
    assert said(context, "permissions", "list", "public/default") == {
        "roles": {"alice": ["produce"]}, "subscriptions": {"s": ["x"]},
    }  # fmt: skip
    assert "alice" in run(context, "permissions", "list", "public/default").stdout
    for role in ("a/b", "..", "."):
        revoke = ("permissions", "revoke", "public/default", "--role", role)
        assert "cannot be said over HTTP" in complaint(context, *revoke, code=1)
    topic = "public/default/granted"
    why = complaint(context, "permissions", "grant", topic, "--role", "alice", "--actions", "consume", code=1)
    assert "not found" in why.lower()
    admin = login(server, folder, "admin", f"token:{(folder / 'admin.token').read_text()}", "PLAIN")
    client = AdminClient(admin)
    client.create_topics([NewTopic("granted", 1)])["granted"].result(20)
    run(context, "permissions", "grant", f"persistent://{topic}", "--role", "alice", "--actions", "consume")
    assert said(context, "permissions", "list", topic) == {"roles": {"alice": ["produce", "consume"]}}
    run(context, "permissions", "revoke", topic, "--role", "alice")
    run(context, "permissions", "revoke", "public/default", "--role", "alice")
    assert said(context, "permissions", "list", topic) == {"roles": {}}
