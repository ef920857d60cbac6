"""Tenants, namespaces and topics over HTTP: statuses and reasons as Apache Pulsar 4.0.8 gave them."""

from collections.abc import Callable

import pytest

from magnetar.admin.routes.policies import NAMESPACE_RESOURCES, TOPIC_RESOURCES
from magnetar.admin.routes.unserved import FEATURES
from magnetar.broker.broker import Broker

from .conversation import ANY, play

MakeBroker = Callable[[], Broker]
TENANT = {"adminRoles": [], "allowedClusters": ["standalone"]}
T = "/persistent/public/default"
N = "/namespaces/public/default"


def test_tenants(make_broker: MakeBroker) -> None:
    play(
        make_broker,
        [
            ("GET", "/tenants", None, 200, ["public"]),
            ("GET", "/tenants/public", None, 200, TENANT),
            ("GET", "/tenants/nope", None, 404, "Tenant does not exist"),
            ("PUT", "/tenants/acme", TENANT, 204, None),
            ("PUT", "/tenants/acme", TENANT, 409, "Tenant already exist"),
            ("PUT", "/tenants/a2", {**TENANT, "allowedClusters": ["x"]}, 412, "Clusters do not exist"),
            (
                "PUT",
                "/tenants/a2",
                {**TENANT, "allowedClusters": []},
                412,
                "Clusters cannot be empty or blank",
            ),
            ("PUT", "/tenants/a2", None, 412, "TenantInfo is null"),
            ("PUT", "/tenants/a2", {"allowedClusters": "standalone"}, 400, ANY),
            ("PUT", "/tenants/a2", [], 400, ANY),
            ("PUT", "/tenants/a%20b", TENANT, 412, "Tenant name is not valid"),
            ("POST", "/tenants/acme", {**TENANT, "adminRoles": ["x"]}, 204, None),
            ("GET", "/tenants/acme", None, 200, {**TENANT, "adminRoles": ["x"]}),
            ("POST", "/tenants/nope", TENANT, 404, "Tenant nope not found"),
            ("PUT", "/namespaces/acme/n", None, 204, None),
            ("DELETE", "/tenants/acme", None, 409, "The tenant still has active namespaces"),
            ("DELETE", "/tenants/acme?force=true", None, 204, None),
            ("DELETE", "/tenants/acme", None, 404, "Tenant doesn't exist"),
        ],
    )


def test_namespaces(make_broker: MakeBroker) -> None:
    everything = {
        "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
        "replication_clusters": [],
        "bundles": {"numBundles": 2},
        "encryption_required": False,
        "schema_compatibility_strategy": "UNDEFINED",
        "subscription_auth_mode": "None",
        "offload_threshold": -1,
        "message_ttl_in_seconds": 7,
    }
    play(
        make_broker,
        [
            ("GET", "/namespaces/public", None, 200, ["public/default"]),
            ("GET", "/namespaces/nope", None, 404, "Tenant not found"),
            ("PUT", "/namespaces/public/n1", None, 204, None),
            ("PUT", "/namespaces/public/n1", None, 409, "Namespace already exists"),
            ("PUT", "/namespaces/nope/n1", None, 404, "Tenant does not exist"),
            ("PUT", "/namespaces/public/n2", everything, 204, None),
            (
                "GET",
                "/namespaces/public/n2",
                None,
                200,
                {
                    "message_ttl_in_seconds": 7,
                    "bundles": {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"], "numBundles": 2},
                    "replication_clusters": ["standalone"],
                    "encryption_required": False,
                    "schema_compatibility_strategy": "UNDEFINED",
                },
            ),
            ("PUT", "/namespaces/public/n3", {"replication_clusters": ["x"]}, 403, ANY),
            ("PUT", "/namespaces/public/n3", {"persistence": {"bookkeeperEnsemble": 3}}, 501, ANY),
            ("PUT", "/namespaces/public/n3", {"auth_policies": {"namespace_auth": {"a": ["b"]}}}, 501, ANY),
            ("PUT", "/namespaces/public/n3", {"message_ttl_in_seconds": -7}, 412, ANY),
            ("PUT", "/namespaces/public/n3", {"bundles": {"numBundles": 5000}}, 412, ANY),
            ("PUT", "/namespaces/public/n%203", None, 412, "Namespace name is not valid"),
            ("GET", "/namespaces/public", None, 200, ["public/default", "public/n1", "public/n2"]),
            ("GET", "/namespaces/public/nope", None, 404, "Namespace does not exist"),
            ("GET", f"{N}/bundles", None, 200, {"numBundles": 4}),
            ("GET", f"{N}/permissions", None, 200, {}),
            ("POST", f"{N}/permissions/bob", ["produce"], 501, "Authorization is not enabled"),
            ("GET", f"{N}/replication", None, 200, ["standalone"]),
            ("POST", f"{N}/replication", ["standalone"], 204, None),
            ("POST", f"{N}/replication", ["x"], 403, ANY),
            ("POST", f"{N}/replication", [], 412, "ClusterIds should not be null or empty"),
            ("PUT", "/persistent/public/n1/t", None, 204, None),
            ("DELETE", "/namespaces/public/n1", None, 409, "Cannot delete non empty namespace"),
            ("DELETE", "/namespaces/public/n1?force=true", None, 204, None),
            ("DELETE", "/namespaces/public/n1", None, 404, "Namespace public/n1 does not exist."),
            ("GET", "/persistent/public/n1", None, 404, "Namespace does not exist"),
        ],
    )


def test_topics_and_partitions(make_broker: MakeBroker) -> None:
    play(
        make_broker,
        [
            ("GET", T, None, 200, []),
            ("GET", f"{T}/partitioned", None, 200, []),
            ("GET", "/persistent/public/nope", None, 404, "Namespace does not exist"),
            ("GET", f"{T}/t0/partitions", None, 404, "Topic persistent://public/default/t0 not found"),
            (
                "GET",
                f"{T}/t0/partitions?checkAllowAutoCreation=true",
                None,
                200,
                {"partitions": 0, "deleted": False},
            ),
            ("GET", T, None, 200, []),
            (
                "GET",
                "/persistent/public/nope/t0/partitions?checkAllowAutoCreation=true",
                None,
                404,
                "Namespace not found",
            ),
            ("PUT", f"{T}/pt/partitions", 3, 204, None),
            ("PUT", f"{T}/pt/partitions", 3, 409, "This topic already exists"),
            ("PUT", f"{T}/p0/partitions", 0, 406, "Number of partitions should be more than 0"),
            ("PUT", f"{T}/p0/partitions", 1 << 40, 406, ANY),
            ("PUT", f"{T}/p0/partitions", "x", 400, ANY),
            ("PUT", "/persistent/public/nope/pt/partitions", 3, 404, "Namespace not found"),
            (
                "PUT",
                f"{T}/pt-partition-1/partitions",
                3,
                412,
                "Partitioned Topic Name should not contain '-partition-'",
            ),
            ("GET", f"{T}/pt/partitions", None, 200, {"partitions": 3}),
            ("GET", f"{T}/pt-partition-1/partitions", None, 200, {"partitions": 0}),
            ("GET", f"{T}/pt-partition-3/partitions", None, 404, ANY),
            ("GET", f"{T}/partitioned", None, 200, ["persistent://public/default/pt"]),
            (
                "GET",
                T,
                None,
                200,
                [f"persistent://public/default/pt-partition-{index}" for index in range(3)],
            ),
            (
                "GET",
                f"{N}/topics",
                None,
                200,
                [f"persistent://public/default/pt-partition-{i}" for i in range(3)],
            ),
            ("GET", f"{N}/topics?mode=NON_PERSISTENT", None, 200, []),
            ("GET", f"{N}/topics?mode=ALL", None, 200, ANY),
            ("GET", f"{N}/topics?mode=XX", None, 404, ANY),
            ("POST", f"{T}/pt/partitions", 5, 204, None),
            ("POST", f"{T}/pt/partitions", 5, 204, None),
            (
                "POST",
                f"{T}/pt/partitions",
                2,
                422,
                "Desired partitions 2 can't be less than the current partitions 5.",
            ),
            (
                "POST",
                f"{T}/nope/partitions",
                2,
                409,
                "Topic persistent://public/default/nope is not the partitioned topic.",
            ),
            ("GET", f"{T}/pt/partitions", None, 200, {"partitions": 5}),
            ("PUT", f"{T}/np", None, 204, None),
            ("PUT", f"{T}/np", None, 409, "This topic already exists"),
            ("PUT", f"{T}/pt", None, 409, "This topic already exists"),
            ("PUT", f"{T}/np/partitions", 4, 409, "This topic already exists"),
            ("PUT", f"{T}/pt-partition-9", None, 412, ANY),
            ("GET", f"{T}/np/partitions", None, 200, {"partitions": 0}),
            ("GET", f"{T}/np-partition-0/partitions", None, 404, ANY),
            ("DELETE", f"{T}/pt", None, 409, ANY),
            ("DELETE", f"{T}/pt-partition-0", None, 409, ANY),
            ("DELETE", f"{T}/np/partitions", None, 404, "Topic persistent://public/default/np not found."),
            ("DELETE", f"{T}/np", None, 204, None),
            ("DELETE", f"{T}/np", None, 404, "Topic persistent://public/default/np not found"),
            ("DELETE", f"{T}/pt/partitions", None, 204, None),
            ("DELETE", f"{T}/pt/partitions", None, 404, "Topic persistent://public/default/pt not found."),
            ("GET", T, None, 200, []),
        ],
    )


def test_a_client_gets_a_partitioned_topic_when_the_namespace_makes_those(make_broker: MakeBroker) -> None:
    three = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
    check = "partitions?checkAllowAutoCreation=true"
    play(
        make_broker,
        [
            ("POST", f"{N}/autoTopicCreation", three, 204, None),
            ("GET", f"{T}/t/{check}", None, 200, {"partitions": 3}),
            ("GET", f"{T}/t/partitions", None, 200, {"partitions": 3}),
            ("GET", f"{T}/t2-partition-0/{check}", None, 404, ANY),
            ("POST", f"{N}/autoTopicCreation", {"allowAutoTopicCreation": False}, 204, None),
            ("GET", f"{T}/t3/{check}", None, 404, ANY),
        ],
    )


def test_lookup(make_broker: MakeBroker) -> None:
    play(
        make_broker,
        [
            (
                "GET",
                "/lookup/v2/topic/persistent/public/default/t",
                None,
                200,
                {
                    "brokerUrl": "pulsar://test:6650",
                    "brokerUrlTls": "",
                    "httpUrl": "http://test",
                    "nativeUrl": "pulsar://test:6650",
                },
            ),
            ("GET", "/lookup/v2/topic/non-persistent/public/default/t-partition-1", None, 200, ANY),
            ("GET", "/lookup/v2/topic/persistent/public/nope/t", None, 404, "Namespace not found"),
            ("GET", "/lookup/v2/topic/xx/public/default/t", None, 404, ANY),
            ("GET", "/lookup/v2/topic/persistent/public/default/t%21", None, 412, ANY),
            # as Pulsar 4.0.8 answered for a topic of the same name
            ("GET", "/lookup/v2/topic/persistent/public/default/t0/bundle", None, 200, ANY),
        ],
    )


def test_clusters_and_brokers(make_broker: MakeBroker) -> None:
    play(
        make_broker,
        [
            ("GET", "/clusters", None, 200, ["standalone"]),
            ("GET", "/clusters/standalone", None, 200, {"brokerServiceUrl": "pulsar://test:6650"}),
            ("GET", "/clusters/nope", None, 404, "Cluster does not exist"),
            ("PUT", "/clusters/standalone", {}, 409, "Cluster already exists"),
            ("PUT", "/clusters/other", {}, 501, ANY),
            ("GET", "/brokers", None, 200, ["test"]),
            ("GET", "/brokers/standalone", None, 200, ["test"]),
            ("GET", "/brokers/nope", None, 404, ANY),
            ("GET", "/brokers/internal-configuration", None, 501, ANY),
            ("GET", "/brokers/backlog-quota-check", None, 204, None),
            ("GET", "/brokers/ready", None, 200, "ok"),
            ("GET", "/brokers/configuration/runtime", None, 200, {"clusterName": "standalone"}),
            ("GET", "/brokers/version", None, 200, ANY),
            ("GET", "/brokers/leaderBroker", None, 200, {"brokerId": "test"}),
            ("GET", "/brokers/standalone/test/ownedNamespaces", None, 200, ANY),
            ("GET", "/brokers/standalone/other/ownedNamespaces", None, 404, ANY),
            ("GET", "/brokers/nope/test/ownedNamespaces", None, 404, ANY),
        ],
    )


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", f"{N}/persistence", 501),
        ("PUT", f"{N}/schemaAutoUpdateCompatibilityStrategy", 501),
        ("GET", "/brokers/shutdown", 501),
        ("GET", "/nope", 404),
        ("POST", "/nope/at/all", 404),
    ],
)
def test_what_is_not_served_says_so(make_broker: MakeBroker, method: str, path: str, status: int) -> None:
    play(make_broker, [(method, path, None, status, ANY)])


def test_a_body_that_is_none_is_refused_and_a_large_one_is_not_read(make_broker: MakeBroker) -> None:
    play(
        make_broker,
        [
            ("PUT", "/namespaces/public/n", "x" * (1 << 20), 413, ANY),
            ("PUT", "/namespaces/public/n", [1], 400, ANY),
            ("PUT", "/namespaces/public/n", {"bundles": {"numBundles": "x"}}, 400, ANY),
        ],
    )


def test_what_is_served_is_not_called_unsupported() -> None:
    served = {resource.path for resource in (*NAMESPACE_RESOURCES, *TOPIC_RESOURCES)}
    assert served & FEATURES.keys() == set()
