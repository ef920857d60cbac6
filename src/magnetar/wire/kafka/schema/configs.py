"""Settings of topics and brokers: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs,
ListConfigResources.

DescribeConfigs: v1 synonyms (KIP-226); v3 types and documentation (KIP-569).  IncrementalAlterConfigs is
KIP-339; ListConfigResources v0 is ListClientMetricsResources of KIP-714, v1 KIP-1142.
"""

from typing import Final

from magnetar.wire.kafka.schema.model import BOOLEAN, INT8, INT16, INT32, STRING, Api, F, S

DESCRIBE_CONFIGS: Final = Api(
    name="DescribeConfigs",
    key=32,
    versions="1-4",
    flexible="4+",
    request=(
        F("resources", [S(
            "DescribeConfigsResource",
            F("resource_type", INT8),
            F("resource_name", STRING),
            F("configuration_keys", [STRING], nullable="0+"),
        )]),
        F("include_synonyms", BOOLEAN, "1+"),
        F("include_documentation", BOOLEAN, "3+"),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("results", [S(
            "DescribeConfigsResult",
            F("error_code", INT16),
            F("error_message", STRING, nullable="0+"),
            F("resource_type", INT8),
            F("resource_name", STRING),
            F("configs", [S(
                "DescribeConfigsResourceResult",
                F("name", STRING),
                F("value", STRING, nullable="0+"),
                F("read_only", BOOLEAN),
                F("config_source", INT8, "1+", default=-1),
                F("is_sensitive", BOOLEAN),
                F("synonyms", [S(
                    "DescribeConfigsSynonym",
                    F("name", STRING, "1+"),
                    F("value", STRING, "1+", nullable="0+"),
                    F("source", INT8, "1+"),
                )], "1+"),
                F("config_type", INT8, "3+"),
                F("documentation", STRING, "3+", nullable="0+"),
            )]),
        )]),
    ),
)  # fmt: skip

_ALTER_RESULT: Final = S(
    "AlterConfigsResourceResponse",
    F("error_code", INT16),
    F("error_message", STRING, nullable="0+"),
    F("resource_type", INT8),
    F("resource_name", STRING),
)

ALTER_CONFIGS: Final = Api(
    name="AlterConfigs",
    key=33,
    versions="0-2",
    flexible="2+",
    request=(
        F("resources", [S(
            "AlterConfigsResource",
            F("resource_type", INT8),
            F("resource_name", STRING),
            F("configs", [S(
                "AlterableConfig",
                F("name", STRING),
                F("value", STRING, nullable="0+"),
            )]),
        )]),
        F("validate_only", BOOLEAN),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("responses", [_ALTER_RESULT]),
    ),
)  # fmt: skip

INCREMENTAL_ALTER_CONFIGS: Final = Api(
    name="IncrementalAlterConfigs",
    key=44,
    versions="0-1",
    flexible="1+",
    request=(
        F("resources", [S(
            "AlterConfigsResource",
            F("resource_type", INT8),
            F("resource_name", STRING),
            F("configs", [S(
                "AlterableConfig",
                F("name", STRING),
                F("config_operation", INT8),
                F("value", STRING, nullable="0+"),
            )]),
        )]),
        F("validate_only", BOOLEAN),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("responses", [_ALTER_RESULT]),
    ),
)  # fmt: skip

LIST_CONFIG_RESOURCES: Final = Api(
    name="ListConfigResources",
    key=74,
    versions="0-1",
    flexible="0+",
    request=(F("resource_types", [INT8], "1+"),),
    response=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("config_resources", [S(
            "ConfigResource",
            F("resource_name", STRING),
            F("resource_type", INT8, "1+", default=16),
        )]),
    ),
)  # fmt: skip
