"""Every form of body in which Apache Pulsar 4.0.8 takes what makes something: statuses and answers are its own.

Media types are what `test_cross_site.py` is about; here the types that Pulsar's clients send are taken.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from magnetar.admin.app import create_app
from magnetar.base.metrics import Metrics
from magnetar.broker.broker import Broker

from .conversation import ANY, play

MakeBroker = Callable[[], Broker]
D = "/persistent/public/default"
N = "/namespaces/public/default"
HINT = "Please increase retention quota and retry"
METADATA = "application/vnd.partitioned-topic-metadata+json"


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/json", "3", 204),
        ("application/json", '"3"', 204),
        ("application/json; charset=utf-8", "3", 204),
        (METADATA, "3", 204),
        (METADATA, '{"partitions":3}', 204),
        (METADATA, '{"partitions":"3"}', 204),
        (METADATA, '{"properties":null,"partitions":3}', 204),
        (METADATA, '{"partitions":3,"properties":{},"deleted":false,"hash":null,"shadowSource":null}', 204),
        (METADATA, '{"partitions":3,"properties":{"a":1}}', 204),
        (METADATA, "{}", 406),
        (METADATA, '{"partitions":-1}', 406),
        (METADATA, '{"partitions":[3]}', 400),
        (METADATA, '{"partitions":3,"properties":["a"]}', 400),
        (METADATA, '{"partitions":3,"properties":{"a":{}}}', 412),
        ("application/json", "true", 400),
        ("application/json", '"three"', 400),
    ],
)
def test_a_partitioned_topic_is_made_by_every_form_of_its_number(
    make_broker: MakeBroker, kind: str, body: str, status: int
) -> None:
    async def main() -> None:
        broker = make_broker()
        await broker.namespaces.load({"public/default"})
        transport = httpx.ASGITransport(create_app(broker.cases, Metrics()))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost/admin/v2") as client:
            path = f"{D}/t/partitions"
            made = await client.put(path, content=body, headers={"content-type": kind})
            assert made.status_code == status, made.text
            found = await client.get(path)
            assert (found.status_code == 200 and found.json()["partitions"] == 3) is (status == 204)

    asyncio.run(main())


def test_topics_have_the_properties_that_they_were_made_with_and_given_later(make_broker: MakeBroker) -> None:
    play(
        make_broker,
        [
            ("PUT", f"{D}/p/partitions", {"partitions": 2, "properties": {"k": "v"}}, 204, None),
            ("PUT", f"{D}/n", {"k": "v"}, 204, None),
            ("PUT", f"{D}/n0", None, 204, None),
            ("GET", f"{D}/p/partitions", None, 200, {"partitions": 2, "properties": {"k": "v"}}),
            ("GET", f"{D}/p/properties", None, 200, {"k": "v"}),
            ("GET", f"{D}/p-partition-0/properties", None, 200, {}),
            ("GET", f"{D}/n/properties", None, 200, {"k": "v"}),
            ("GET", f"{D}/n0/properties", None, 200, {}),
            ("GET", f"{D}/nope/properties", None, 404, "Topic persistent://public/default/nope not found"),
            ("PUT", f"{D}/p/properties", {"k": "w", "l": "x"}, 204, None),
            ("PUT", f"{D}/n0/properties", {"l": "x"}, 204, None),
            ("PUT", f"{D}/n0/properties", None, 204, None),
            ("PUT", f"{D}/n0/properties", ["l"], 400, ANY),
            ("PUT", f"{D}/nope/properties", {"l": "x"}, 404, ANY),
            ("PUT", f"{D}/p-partition-0/properties", {"l": "x"}, 412, ANY),
            ("DELETE", f"{D}/p/properties?key=k", None, 204, None),
            ("DELETE", f"{D}/p/properties?key=nope", None, 204, None),
            ("DELETE", f"{D}/p/properties", None, 400, ANY),
            ("GET", f"{D}/p/properties", None, 200, {"l": "x"}),
            ("GET", f"{D}/n0/properties", None, 200, {"l": "x"}),
            ("PUT", f"{D}/p", {"k": "v"}, 409, "This topic already exists"),
            ("GET", f"{D}/p/properties", None, 200, {"l": "x"}),
            ("DELETE", f"{D}/p/partitions", None, 204, None),
            ("PUT", f"{D}/p/partitions", 2, 204, None),
            ("GET", f"{D}/p/properties", None, 200, {}),  # a predecessor's are not its own
            ("GET", f"{D}/p/partitions", None, 200, {"partitions": 2, "properties": None}),
        ],
    )


# What the Go client sends for a `Policies` of which nothing was set: Go's own empty values, not Pulsar's.
GO_EMPTY: dict[str, Any] = {
    "bundles": None,
    "persistence": None,
    "retention_policies": None,
    "schema_validation_enforced": False,
    "deduplicationEnabled": None,
    "deleted": False,
    "encryption_required": False,
    "message_ttl_in_seconds": None,
    "offload_threshold": 0,
    "offload_deletion_lag_ms": None,
    "antiAffinityGroup": "",
    "replication_clusters": None,
    "latency_stats_sample_rate": None,
    "backlog_quota_map": None,
    "topicDispatchRate": None,
    "autoTopicCreationOverride": None,
    "schema_auto_update_compatibility_strategy": "",
    "schema_compatibility_strategy": "",
    "auth_policies": {"namespace_auth": None, "destination_auth": None, "subscription_auth_roles": None},
    "subscription_auth_mode": "",
    "is_allow_auto_update_schema": None,
}


def test_namespaces_are_made_with_the_policies_that_clients_send(make_broker: MakeBroker) -> None:
    of_the_client = {
        **GO_EMPTY,
        "offload_threshold": -1,
        "replication_clusters": ["standalone"],
        "schema_auto_update_compatibility_strategy": "Full",
        "schema_compatibility_strategy": "BACKWARD",
        "subscription_auth_mode": "None",
        "message_ttl_in_seconds": 77,
        "bundles": {"boundaries": None, "numBundles": 7},
    }
    play(
        make_broker,
        [
            ("PUT", "/namespaces/public/empty", GO_EMPTY, 204, None),
            ("PUT", "/namespaces/public/full", of_the_client, 204, None),
            (
                "GET",
                "/namespaces/public/full",
                None,
                200,
                {"message_ttl_in_seconds": 77, "schema_compatibility_strategy": "BACKWARD"},
            ),
            ("GET", "/namespaces/public/empty", None, 200, {"schema_compatibility_strategy": "UNDEFINED"}),
            ("PUT", "/namespaces/public/n", {**GO_EMPTY, "antiAffinityGroup": "g"}, 501, ANY),
            (
                "PUT",
                "/namespaces/public/n",
                {**GO_EMPTY, "schema_auto_update_compatibility_strategy": "AutoUpdateDisabled"},
                501,
                ANY,
            ),
            ("PUT", "/namespaces/public/n", {"auth_policies": {"namespace_auth": {"a": ["b"]}}}, 501, ANY),
        ],
    )


def test_a_namespace_that_is_made_with_the_document_of_one_without_policies_has_none(
    make_broker: MakeBroker,
) -> None:
    """What holds where nothing is set is no policy, though Pulsar's document says it."""

    async def main() -> None:
        broker = make_broker()
        await broker.namespaces.load({"public/default"})
        transport = httpx.ASGITransport(create_app(broker.cases, Metrics()))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost/admin/v2") as client:
            document = (await client.get(N)).json()
            assert document["subscription_auth_mode"] == "None"
            made = await client.put("/namespaces/public/copy", json=document)
            assert made.status_code == 204, made.text
            assert (await client.get("/namespaces/public/copy")).json() == document
        assert broker.namespaces.require("public/copy").policies == {}

    asyncio.run(main())


def test_a_text_stands_for_the_number_or_flag_that_it_spells(make_broker: MakeBroker) -> None:
    play(
        make_broker,
        [
            ("POST", f"{N}/encryptionRequired", "true", 204, None),  # as Pulsar's Go client sends it
            ("GET", f"{N}/encryptionRequired", None, 200, True),
            ("POST", f"{N}/encryptionRequired", "yes", 400, ANY),
            ("POST", f"{N}/messageTTL", "11", 204, None),
            ("GET", f"{N}/messageTTL", None, 200, 11),
        ],
    )


def test_properties_of_a_namespace_are_added_to_those_that_there_are(make_broker: MakeBroker) -> None:
    play(
        make_broker,
        [
            ("PUT", f"{N}/properties", {"a": "1", "b": "2"}, 204, None),
            ("PUT", f"{N}/properties", {"b": "3", "c": "2"}, 204, None),
            ("GET", f"{N}/properties", None, 200, {"a": "1", "b": "3", "c": "2"}),
            ("DELETE", f"{N}/properties", None, 204, None),
            ("GET", f"{N}/properties", None, 200, {}),
        ],
    )


def _quota(size: int, seconds: int = -1) -> dict[str, Any]:
    return {"limitSize": size, "limitTime": seconds, "policy": "producer_exception"}


@pytest.mark.parametrize("level", ["namespace", "topic"])
def test_a_backlog_quota_stays_below_what_is_retained(make_broker: MakeBroker, level: str) -> None:
    path = N if level == "namespace" else f"{D}/t"
    retention = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 20}
    above = f"Backlog Quota exceeds configured retention quota for {level}. Please increase retention quota and retry"
    play(
        make_broker,
        [
            ("PUT", f"{D}/t", None, 204, None),
            ("POST", f"{path}/retention", retention, 204, None),
            ("POST", f"{path}/backlogQuota", _quota(20 << 20), 412, above),
            ("POST", f"{path}/backlogQuota", _quota(1000, 600), 412, above),
            ("GET", f"{path}/backlogQuotaMap", None, 200, {}),
            ("POST", f"{path}/backlogQuota", _quota((20 << 20) - 1, 599), 204, None),
            (
                "POST",
                f"{path}/retention",
                {**retention, "retentionSizeInMB": 19},
                412,
                f"Retention Quota must exceed configured backlog quota for {level}. {HINT}",
            ),
            ("GET", f"{path}/retention", None, 200, retention),
            ("POST", f"{path}/retention", {**retention, "retentionSizeInMB": -1}, 204, None),
            ("POST", f"{path}/retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}, 204, None),
            ("POST", f"{path}/backlogQuota", _quota(1 << 40, 1 << 20), 204, None),
            ("POST", f"{path}/messageTTL", 5, 204, None),
        ],
    )
