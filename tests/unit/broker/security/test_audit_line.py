"""Lines of the audit log: their words, and that no text of a client's makes more of a line than one."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.security.audit_line import (
    ITEMS_MAX,
    LINE_BYTES_MAX,
    TEXT_CHARS_MAX,
    Change,
    Event,
    Key,
    Result,
    audit_line,
)

NOW_MS = 1_700_000_000_007
# A long text is a short one many times: a few hundred letters drawn one by one are more than hypothesis lets an
# example be, and eight such texts stand in one.
TEXTS = st.text(max_size=40) | st.text(min_size=3, max_size=9).map(lambda text: text * (TEXT_CHARS_MAX // 3))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=60) | st.dictionaries(TEXTS, inner, max_size=60),
    max_leaves=80,
)


def read(fields: dict[str, object]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(audit_line(NOW_MS, fields))
    return found


def test_the_words_that_programs_compare_stay() -> None:
    assert [one for name, one in vars(Key).items() if not name.startswith("_")] == [
        "time",
        "event",
        "result",
        "error",
        "principal",
        "proxy",
        "host",
        "door",
        "listener",
        "client",
        "operation",
        "resource_type",
        "resource",
        "topic",
        "method",
        "reason",
        "details",
        "count",
        "cut",
    ]
    assert [one.value for one in Event] == ["change", "refusal", "login", "dropped"]
    assert [one.value for one in Result] == ["done", "failed", "unfinished", "refused", "accepted"]
    assert [one.value for one in Change] == [
        "acl.create",
        "acl.delete",
        "broker.configs",
        "client_metrics.configs",
        "delegation_token.create",
        "delegation_token.expire",
        "delegation_token.renew",
        "function.create",
        "function.delete",
        "function.restart",
        "function.start",
        "function.state",
        "function.stop",
        "function.update",
        "group.configs",
        "group.delete",
        "group.delete_offsets",
        "group.set_offsets",
        "link.cut",
        "link.declare",
        "logger.levels",
        "namespace.create",
        "namespace.delete",
        "namespace.policies",
        "namespace.resource_group",
        "namespace.unload",
        "permission.grant",
        "permission.revoke",
        "pipeline.create",
        "pipeline.delete",
        "pipeline.restart",
        "pipeline.start",
        "pipeline.stop",
        "pipeline.update",
        "quotas.set",
        "replicator.add_config",
        "replicator.deregister",
        "replicator.register",
        "replicator.remove_config",
        "replicator.update",
        "resource_group.delete",
        "resource_group.set",
        "schema.add",
        "schema.delete",
        "scram.delete",
        "scram.set",
        "subscription.create",
        "subscription.delete",
        "subscription.expire",
        "subscription.properties",
        "subscription.reset",
        "subscription.skip",
        "tenant.create",
        "tenant.delete",
        "tenant.update",
        "topic.compact",
        "topic.configs",
        "topic.create",
        "topic.delete",
        "topic.delete_records",
        "topic.end_transaction",
        "topic.grow",
        "topic.policies",
        "topic.terminate",
        "topic.trim",
        "topic.truncate",
        "topic.unload",
        "transaction.abort",
    ]


@given(
    st.fixed_dictionaries(
        dict.fromkeys((Key.PRINCIPAL, Key.PROXY, Key.HOST, Key.CLIENT, Key.RESOURCE, Key.TOPIC), TEXTS)
    ),
    st.dictionaries(TEXTS, VALUES, max_size=8),
)
def test_a_line_is_one_bounded_object_whatever_is_in_it(
    fields: dict[str, object], details: dict[str, object]
) -> None:
    line = audit_line(NOW_MS, {**fields, Key.DETAILS: details})
    assert len(line) <= LINE_BYTES_MAX
    assert line.isascii()
    assert line.count(b"\n") == 1
    assert line.endswith(b"}\n")
    assert not any(byte < 0x20 for byte in line[:-1])
    json.loads(line, parse_constant=lambda word: 1 / 0)


def test_the_time_is_utc_with_milliseconds_and_what_says_nothing_is_left_out() -> None:
    assert audit_line(NOW_MS, {Key.PRINCIPAL: "User:a", Key.ERROR: "", Key.TOPIC: None, Key.DETAILS: {}}) == (
        b'{"time":"2023-11-14T22:13:20.007Z","principal":"User:a"}\n'
    )


def test_what_is_long_is_cut_with_how_much_more_there_was() -> None:
    line = read({Key.RESOURCE: "x" * (TEXT_CHARS_MAX + 5), Key.DETAILS: {"list": [1] * (ITEMS_MAX + 7)}})
    assert line["resource"] == "x" * TEXT_CHARS_MAX + "... 5 more"
    assert line["details"]["list"] == [1] * ITEMS_MAX + ["... 7 more"]
    assert "cut" not in line


def test_a_line_that_would_be_too_long_keeps_who_and_what() -> None:
    line = read({Key.PRINCIPAL: "\u00fc" * 400, Key.RESOURCE: "t", Key.DETAILS: {"a": ["\u00fc" * 200] * 40}})
    assert (line["cut"], line["resource"]) == (True, "t")
    assert line["principal"].startswith("\u00fc" * 30)
    assert "details" not in line
