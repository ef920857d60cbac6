"""What `magnetar acls` and `permissions` make of their words, before any server is asked."""

import pytest

from magnetar.cli.main import run

NOWHERE = ("--bootstrap-server", "127.0.0.1:1")
ALICE = ("--allow-principal", "User:alice")


@pytest.mark.parametrize("noun", ["acls", "permissions", "users"])
def test_help_says_what_each_verb_is_for(noun: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([noun, "--help"]) == 0
    verbs = [line.split() for line in capsys.readouterr().out.partition("Commands:")[2].splitlines() if line]
    assert verbs
    for verb, *words in verbs:
        assert words, verb
        assert run([noun, verb, "--help"]) == 0
        assert "--context" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["acls", "add", "--topic", "t"], "say who"),
        (["acls", "add", *ALICE], "say of what"),
        (["acls", "add", "--topic", "t", "--allow-principal", "alice"], "it looks like User:alice"),
        (["acls", "add", "--topic", "t", *ALICE, "--operation", "fly"], "there is no operation 'fly'"),
        (["acls", "add", "--topic", "t", *ALICE, "--operation", "any"], "there is no operation 'any'"),
        (["acls", "add", "--topic", "t", *ALICE, "--operation", "ClusterAction"], "nothing that a topic has"),
        (["acls", "add", "--topic", "t", *ALICE, "--resource-pattern-type", "match"], "for finding some"),
        (["acls", "add", "--topic", "t", *ALICE, "--resource-pattern-type", "x"], "match or any, not 'x'"),
        (["acls", "add", "--topic", "t", *ALICE, "--deny-host", "::1"], "--deny-host for --deny-principal"),
        (
            ["acls", "add", "--topic", "t", *ALICE, "--producer", "--operation", "read"],
            "leave --operation out",
        ),
        (["acls", "add", "--group", "t", *ALICE, "--producer"], "--producer needs a --topic"),
        (["acls", "add", "--topic", "t", *ALICE, "--consumer"], "a --topic and a --group"),
        (["acls", "add", "--topic", "t", "--group", "g", *ALICE, "--producer"], "a group is nothing for"),
        (["acls", "add", "--topic", "t", *ALICE, "--idempotent"], "goes with --producer"),
        (["acls", "remove", *ALICE], "say of what"),
        (["acls", "remove", "--topic", "t"], "say --force"),
        (["acls", "remove", "--topic", "t", "--operation", "read", "--force"], "say whose rules"),
        (["users", "create", "a", "--mechanism", "x"], "not 'X'"),
    ],
)
def test_words_that_say_nothing_are_one_sentence(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, *NOWHERE]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["list", "public"], "is neither"),
        (["list", "pub lic/default"], "may have only ASCII"),
        (["list", "public/../x"], "cannot be"),
        (["list", "a/b/c/d"], "must be 'topic'"),
        (["grant", "a/b", "--role", "r"], "at least one"),
        (["grant", "a/b", "--role", "r", "--actions", "produce,fly"], "not 'fly'"),
        (
            ["grant", "a/b", "--role", "r", "--subscription", "s", "--actions", "produce"],
            "leave --actions out",
        ),
        (["grant", "a/b/c", "--role", "r", "--subscription", "s"], "say a/b"),
        (["revoke", "a/b/c", "--role", "r", "--subscription", "s"], "say a/b"),
        (["grant", "a/b"], "--role"),
    ],
)
def test_permissions_are_of_a_namespace_or_a_topic(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["permissions", *arguments, *(["--url", "http://127.0.0.1:1"])]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line
