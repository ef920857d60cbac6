"""Names of enumerations that are data: in the metadata, in REST and in the audit log.  They only grow.

The code writes a member's name where it stores or shows the member, so a rename would lose what is stored, or break the
programs that read it.
"""

from enum import Enum

import pytest

from magnetar.broker.groups.errors import GroupError
from magnetar.broker.schemas.model import SchemaType
from magnetar.broker.security.model import Operation, ResourceType
from magnetar.broker.security.rule import Pattern, Rule, Target

WORDS: dict[type[Enum], str] = {
    Operation: (  # stored in rules, and in lines of the audit log
        "ALL READ WRITE CREATE DELETE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE"
        " CREATE_TOKENS DESCRIBE_TOKENS FUNCTIONS SOURCES SINKS"
    ),
    ResourceType: (  # stored in rules
        "CLUSTER TENANT NAMESPACE TOPIC SUBSCRIPTION TRANSACTIONAL_ID PIPELINE DELEGATION_TOKEN USER"
    ),
    Pattern: "LITERAL PREFIXED EVERY",  # stored in rules
    SchemaType: (  # stored in definitions, and shown by Pulsar's admin API
        "NONE STRING JSON PROTOBUF AVRO BOOLEAN INT8 INT16 INT32 INT64 FLOAT DOUBLE DATE TIME TIMESTAMP KEY_VALUE"
        " INSTANT LOCAL_DATE LOCAL_TIME LOCAL_DATE_TIME PROTOBUF_NATIVE AUTO_CONSUME EXTERNAL"
    ),
    GroupError: (  # why a link could not set a group's position, and in lines of the audit log
        "NONE COORDINATOR_NOT_AVAILABLE INVALID_GROUP_ID UNKNOWN_MEMBER_ID GROUP_ID_NOT_FOUND NON_EMPTY_GROUP"
        " GROUP_SUBSCRIBED_TO_TOPIC OFFSET_METADATA_TOO_LARGE UNKNOWN_TOPIC_OR_PARTITION KAFKA_STORAGE_ERROR"
        " FENCED_MEMBER_EPOCH STALE_MEMBER_EPOCH ILLEGAL_GENERATION REBALANCE_IN_PROGRESS"
    ),
}


@pytest.mark.parametrize("words", WORDS, ids=lambda words: words.__name__)
def test_names_that_are_data_stay(words: type[Enum]) -> None:
    assert set(WORDS[words].split()) <= words.__members__.keys()


def test_the_stored_form_of_a_rule_stays() -> None:
    """Its path is a digest of it: in another form, a rule could be neither found nor removed."""
    rule = Rule(
        "User:ann",
        Operation.WRITE,
        Target(ResourceType.TOPIC, Pattern.LITERAL, "persistent://public/default/t"),
    )
    assert rule.encode() == (
        b'{"v": 1, "principal": "User:ann", "operation": "WRITE", "type": "TOPIC", "pattern": "LITERAL",'
        b' "name": "persistent://public/default/t", "scope": "", "allow": true, "host": "*", "role": false}'
    )
    assert rule.path == "/rules/c5a4e472a837e5cce5c80ca9d279f9f84104cd4e"
    assert Rule.decode(rule.encode()) == rule
