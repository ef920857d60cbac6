"""The words for the parts of Kafka's access rules, as flags take them and tables and JSON show them.

Scripts depend on them, so they are written here, and do not follow from names in the code.  Those of operations are
spelled as in `kafka-acls`.
"""

from collections.abc import Mapping
from typing import Final

from magnetar.client.kafka.acls import AclOperation, AclPattern, AclPermission, AclType

TYPES: Final[Mapping[AclType, str]] = {
    AclType.ANY: "any",
    AclType.TOPIC: "topic",
    AclType.GROUP: "group",
    AclType.CLUSTER: "cluster",
    AclType.TRANSACTIONAL_ID: "transactional_id",
    AclType.DELEGATION_TOKEN: "delegation_token",
    AclType.USER: "user",
}
PATTERNS: Final[Mapping[AclPattern, str]] = {
    AclPattern.ANY: "any",
    AclPattern.MATCH: "match",
    AclPattern.LITERAL: "literal",
    AclPattern.PREFIXED: "prefixed",
}
OPERATIONS: Final[Mapping[AclOperation, str]] = {
    AclOperation.ANY: "Any",
    AclOperation.ALL: "All",
    AclOperation.READ: "Read",
    AclOperation.WRITE: "Write",
    AclOperation.CREATE: "Create",
    AclOperation.DELETE: "Delete",
    AclOperation.ALTER: "Alter",
    AclOperation.DESCRIBE: "Describe",
    AclOperation.CLUSTER_ACTION: "ClusterAction",
    AclOperation.DESCRIBE_CONFIGS: "DescribeConfigs",
    AclOperation.ALTER_CONFIGS: "AlterConfigs",
    AclOperation.IDEMPOTENT_WRITE: "IdempotentWrite",
    AclOperation.CREATE_TOKENS: "CreateTokens",
    AclOperation.DESCRIBE_TOKENS: "DescribeTokens",
}
PERMISSIONS: Final[Mapping[AclPermission, str]] = {
    AclPermission.ANY: "any",
    AclPermission.DENY: "deny",
    AclPermission.ALLOW: "allow",
}
