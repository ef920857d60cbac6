"""Which clients may come in and what they may do: SASL, access control lists, SCRAM credentials, delegation tokens,
client quotas.

SaslHandshake v1 says that SaslAuthenticate frames follow (KIP-152); SaslAuthenticate v1 session life
(KIP-368). The ACL APIs start at v1: pattern types (KIP-290).  Quotas are KIP-546, SCRAM credentials
KIP-554, delegation tokens KIP-48 and, with owners other than the client that asks for them, KIP-373.
"""

from typing import Final

from magnetar.wire.kafka.schema.model import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Api,
    F,
    S,
)

_LITERAL: Final = 3  # the pattern type of plain names

SASL_HANDSHAKE: Final = Api(
    name="SaslHandshake",
    key=17,
    versions="0-1",
    flexible="",
    request=(F("mechanism", STRING),),
    response=(
        F("error_code", INT16),
        F("mechanisms", [STRING]),
    ),
)

SASL_AUTHENTICATE: Final = Api(
    name="SaslAuthenticate",
    key=36,
    versions="0-2",
    flexible="2+",
    request=(F("auth_bytes", BYTES),),
    response=(
        F("error_code", INT16),
        F("error_message", STRING, nullable="0+"),
        F("auth_bytes", BYTES),
        F("session_lifetime_ms", INT64, "1+"),
    ),
)

DESCRIBE_ACLS: Final = Api(
    name="DescribeAcls",
    key=29,
    versions="1-3",
    flexible="2+",
    request=(
        F("resource_type_filter", INT8),
        F("resource_name_filter", STRING, nullable="0+"),
        F("pattern_type_filter", INT8, "1+", default=_LITERAL),
        F("principal_filter", STRING, nullable="0+"),
        F("host_filter", STRING, nullable="0+"),
        F("operation", INT8),
        F("permission_type", INT8),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable="0+"),
        F("resources", [S(
            "DescribeAclsResource",
            F("resource_type", INT8),
            F("resource_name", STRING),
            F("pattern_type", INT8, "1+", default=_LITERAL),
            F("acls", [S(
                "AclDescription",
                F("principal", STRING),
                F("host", STRING),
                F("operation", INT8),
                F("permission_type", INT8),
            )]),
        )]),
    ),
)  # fmt: skip

CREATE_ACLS: Final = Api(
    name="CreateAcls",
    key=30,
    versions="1-3",
    flexible="2+",
    request=(
        F("creations", [S(
            "AclCreation",
            F("resource_type", INT8),
            F("resource_name", STRING),
            F("resource_pattern_type", INT8, "1+", default=_LITERAL),
            F("principal", STRING),
            F("host", STRING),
            F("operation", INT8),
            F("permission_type", INT8),
        )]),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("results", [S(
            "AclCreationResult",
            F("error_code", INT16),
            F("error_message", STRING, nullable="0+"),
        )]),
    ),
)  # fmt: skip

DELETE_ACLS: Final = Api(
    name="DeleteAcls",
    key=31,
    versions="1-3",
    flexible="2+",
    request=(
        F("filters", [S(
            "DeleteAclsFilter",
            F("resource_type_filter", INT8),
            F("resource_name_filter", STRING, nullable="0+"),
            F("pattern_type_filter", INT8, "1+", default=_LITERAL),
            F("principal_filter", STRING, nullable="0+"),
            F("host_filter", STRING, nullable="0+"),
            F("operation", INT8),
            F("permission_type", INT8),
        )]),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("filter_results", [S(
            "DeleteAclsFilterResult",
            F("error_code", INT16),
            F("error_message", STRING, nullable="0+"),
            F("matching_acls", [S(
                "DeleteAclsMatchingAcl",
                F("error_code", INT16),
                F("error_message", STRING, nullable="0+"),
                F("resource_type", INT8),
                F("resource_name", STRING),
                F("pattern_type", INT8, "1+", default=_LITERAL),
                F("principal", STRING),
                F("host", STRING),
                F("operation", INT8),
                F("permission_type", INT8),
            )]),
        )]),
    ),
)  # fmt: skip

_QUOTA_ENTITY: Final = S(
    "EntityData",
    F("entity_type", STRING),
    F("entity_name", STRING, nullable="0+"),
)

DESCRIBE_CLIENT_QUOTAS: Final = Api(
    name="DescribeClientQuotas",
    key=48,
    versions="0-1",
    flexible="1+",
    request=(
        F("components", [S(
            "ComponentData",
            F("entity_type", STRING),
            F("match_type", INT8),
            F("match", STRING, nullable="0+"),
        )]),
        F("strict", BOOLEAN),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable="0+"),
        F("entries", [S(
            "EntryData",
            F("entity", [_QUOTA_ENTITY]),
            F("values", [S(
                "ValueData",
                F("key", STRING),
                F("value", FLOAT64),
            )]),
        )], nullable="0+"),
    ),
)  # fmt: skip

ALTER_CLIENT_QUOTAS: Final = Api(
    name="AlterClientQuotas",
    key=49,
    versions="0-1",
    flexible="1+",
    request=(
        F("entries", [S(
            "EntryData",
            F("entity", [_QUOTA_ENTITY]),
            F("ops", [S(
                "OpData",
                F("key", STRING),
                F("value", FLOAT64),
                F("remove", BOOLEAN),
            )]),
        )]),
        F("validate_only", BOOLEAN),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("entries", [S(
            "EntryResult",
            F("error_code", INT16),
            F("error_message", STRING, nullable="0+"),
            F("entity", [_QUOTA_ENTITY]),
        )]),
    ),
)  # fmt: skip

DESCRIBE_USER_SCRAM_CREDENTIALS: Final = Api(
    name="DescribeUserScramCredentials",
    key=50,
    versions="0",
    flexible="0+",
    request=(
        F("users", [S(
            "UserName",
            F("name", STRING),
        )], nullable="0+"),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable="0+"),
        F("results", [S(
            "DescribeUserScramCredentialsResult",
            F("user", STRING),
            F("error_code", INT16),
            F("error_message", STRING, nullable="0+"),
            F("credential_infos", [S(
                "CredentialInfo",
                F("mechanism", INT8),
                F("iterations", INT32),
            )]),
        )]),
    ),
)  # fmt: skip

ALTER_USER_SCRAM_CREDENTIALS: Final = Api(
    name="AlterUserScramCredentials",
    key=51,
    versions="0",
    flexible="0+",
    request=(
        F("deletions", [S(
            "ScramCredentialDeletion",
            F("name", STRING),
            F("mechanism", INT8),
        )]),
        F("upsertions", [S(
            "ScramCredentialUpsertion",
            F("name", STRING),
            F("mechanism", INT8),
            F("iterations", INT32),
            F("salt", BYTES),
            F("salted_password", BYTES),
        )]),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("results", [S(
            "AlterUserScramCredentialsResult",
            F("user", STRING),
            F("error_code", INT16),
            F("error_message", STRING, nullable="0+"),
        )]),
    ),
)  # fmt: skip

CREATE_DELEGATION_TOKEN: Final = Api(
    name="CreateDelegationToken",
    key=38,
    versions="1-3",
    flexible="2+",
    request=(
        F("owner_principal_type", STRING, "3+", nullable="3+"),
        F("owner_principal_name", STRING, "3+", nullable="3+"),
        F("renewers", [S(
            "CreatableRenewers",
            F("principal_type", STRING),
            F("principal_name", STRING),
        )]),
        F("max_lifetime_ms", INT64),
    ),
    response=(
        F("error_code", INT16),
        F("principal_type", STRING),
        F("principal_name", STRING),
        F("token_requester_principal_type", STRING, "3+"),
        F("token_requester_principal_name", STRING, "3+"),
        F("issue_timestamp_ms", INT64),
        F("expiry_timestamp_ms", INT64),
        F("max_timestamp_ms", INT64),
        F("token_id", STRING),
        F("hmac", BYTES),
        F("throttle_time_ms", INT32),
    ),
)  # fmt: skip

RENEW_DELEGATION_TOKEN: Final = Api(
    name="RenewDelegationToken",
    key=39,
    versions="1-2",
    flexible="2+",
    request=(
        F("hmac", BYTES),
        F("renew_period_ms", INT64),
    ),
    response=(
        F("error_code", INT16),
        F("expiry_timestamp_ms", INT64),
        F("throttle_time_ms", INT32),
    ),
)

EXPIRE_DELEGATION_TOKEN: Final = Api(
    name="ExpireDelegationToken",
    key=40,
    versions="1-2",
    flexible="2+",
    request=(
        F("hmac", BYTES),
        F("expiry_time_period_ms", INT64),
    ),
    response=(
        F("error_code", INT16),
        F("expiry_timestamp_ms", INT64),
        F("throttle_time_ms", INT32),
    ),
)

DESCRIBE_DELEGATION_TOKEN: Final = Api(
    name="DescribeDelegationToken",
    key=41,
    versions="1-3",
    flexible="2+",
    request=(
        F("owners", [S(
            "DescribeDelegationTokenOwner",
            F("principal_type", STRING),
            F("principal_name", STRING),
        )], nullable="0+"),
    ),
    response=(
        F("error_code", INT16),
        F("tokens", [S(
            "DescribedDelegationToken",
            F("principal_type", STRING),
            F("principal_name", STRING),
            F("token_requester_principal_type", STRING, "3+"),
            F("token_requester_principal_name", STRING, "3+"),
            F("issue_timestamp", INT64),
            F("expiry_timestamp", INT64),
            F("max_timestamp", INT64),
            F("token_id", STRING),
            F("hmac", BYTES),
            F("renewers", [S(
                "DescribedDelegationTokenRenewer",
                F("principal_type", STRING),
                F("principal_name", STRING),
            )]),
        )]),
        F("throttle_time_ms", INT32),
    ),
)  # fmt: skip
