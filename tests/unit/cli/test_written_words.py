"""Words that scripts give to commands and read from their JSON: they are as they were, whatever code is called."""

from magnetar.base.config import TYPE_WORDS, ConfigType
from magnetar.cli.acl_words import OPERATIONS, PATTERNS, PERMISSIONS, TYPES
from magnetar.client.kafka.acls import AclOperation, AclPattern, AclPermission, AclType


def test_parts_of_access_rules_have_these_words() -> None:
    assert {int(one): word for one, word in TYPES.items()} == {
        1: "any",
        2: "topic",
        3: "group",
        4: "cluster",
        5: "transactional_id",
        6: "delegation_token",
        7: "user",
    }
    assert {int(one): word for one, word in PATTERNS.items()} == {
        1: "any",
        2: "match",
        3: "literal",
        4: "prefixed",
    }
    assert {int(one): word for one, word in PERMISSIONS.items()} == {1: "any", 2: "deny", 3: "allow"}
    assert {int(one): word for one, word in OPERATIONS.items()} == {
        1: "Any",
        2: "All",
        3: "Read",
        4: "Write",
        5: "Create",
        6: "Delete",
        7: "Alter",
        8: "Describe",
        9: "ClusterAction",
        10: "DescribeConfigs",
        11: "AlterConfigs",
        12: "IdempotentWrite",
        13: "CreateTokens",
        14: "DescribeTokens",
    }


def test_types_of_settings_have_these_words() -> None:
    assert {int(one): word for one, word in TYPE_WORDS.items()} == {
        1: "boolean",
        2: "string",
        3: "int",
        5: "long",
        6: "double",
        7: "list",
        9: "password",
    }


def test_each_number_of_kafkas_has_a_word() -> None:
    assert TYPES.keys() == {*AclType}
    assert PATTERNS.keys() == {*AclPattern}
    assert OPERATIONS.keys() == {*AclOperation}
    assert PERMISSIONS.keys() == {*AclPermission}
    assert TYPE_WORDS.keys() == {*ConfigType}
