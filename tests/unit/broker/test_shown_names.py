"""Names of members that leave the server as they are: to rename one renames it for clients and readers of logs.

The audit log names operations and types of resources, REST names types of schemas as Pulsar does.
"""

from magnetar.broker.schemas.model import SchemaType
from magnetar.broker.security.model import Operation, ResourceType

OPERATIONS = {
    2: "ALL",
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
    13: "CREATE_TOKENS",
    14: "DESCRIBE_TOKENS",
    24: "FUNCTIONS",
    25: "SOURCES",
    26: "SINKS",
    27: "PACKAGES",
}
RESOURCE_TYPES = {
    "cluster",
    "tenant",
    "namespace",
    "topic",
    "subscription",
    "transactional id",
    "pipeline",
    "delegation token",
    "user",
}
SCHEMA_TYPES = {
    0: "NONE",
    1: "STRING",
    2: "JSON",
    3: "PROTOBUF",
    4: "AVRO",
    5: "BOOLEAN",
    6: "INT8",
    7: "INT16",
    8: "INT32",
    9: "INT64",
    10: "FLOAT",
    11: "DOUBLE",
    12: "DATE",
    13: "TIME",
    14: "TIMESTAMP",
    15: "KEY_VALUE",
    16: "INSTANT",
    17: "LOCAL_DATE",
    18: "LOCAL_TIME",
    19: "LOCAL_DATE_TIME",
    20: "PROTOBUF_NATIVE",
    21: "AUTO_CONSUME",
    22: "EXTERNAL",
}


def test_the_audit_log_names_operations_and_resources_as_it_did() -> None:
    assert {int(one): one.name for one in Operation} == OPERATIONS
    assert {one.value for one in ResourceType} == RESOURCE_TYPES


def test_rest_names_types_of_schemas_as_pulsar_does() -> None:
    assert {int(one): one.name for one in SchemaType} == SCHEMA_TYPES
