"""The smallest request of each kind about settings and quotas, see `authorized_kinds.py`."""

import logging
from typing import Final

from magnetar.broker.security.model import Operation
from magnetar.protocols.kafka.admin_configs import ResourceType as ConfigType
from magnetar.wire.kafka.messages.alter_client_quotas import AlterClientQuotasRequest, OpData
from magnetar.wire.kafka.messages.alter_client_quotas import EntityData as QuotaEntity
from magnetar.wire.kafka.messages.alter_client_quotas import EntryData as QuotaEntry
from magnetar.wire.kafka.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from magnetar.wire.kafka.messages.describe_client_quotas import DescribeClientQuotasRequest
from magnetar.wire.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from magnetar.wire.kafka.messages.incremental_alter_configs import AlterableConfig as Change
from magnetar.wire.kafka.messages.incremental_alter_configs import AlterConfigsResource as ChangedResource
from magnetar.wire.kafka.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from magnetar.wire.kafka.messages.list_config_resources import ListConfigResourcesRequest
from tests.unit.protocols.kafka.authorized_kinds import (
    CLUSTER,
    CLUSTER_DENIED,
    GROUP,
    GROUP_DENIED,
    TOPIC,
    TOPIC_DENIED,
    Kind,
    right,
)


def _config(kind: ConfigType, name: str) -> DescribeConfigsRequest:
    return DescribeConfigsRequest([DescribeConfigsResource(kind, name, None)])


def _change(kind: ConfigType, name: str, key: str, value: str) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest([ChangedResource(kind, name, [Change(key, 0, value)])])


_BROKER: Final = "1"
_LOGGER: Final = logging.getLogger("magnetar.tests.denied")  # its own: its level stays as it is set

CONFIG_KINDS: Final = [
    Kind(
        "alter_configs",
        2,
        lambda n: AlterConfigsRequest(
            [AlterConfigsResource(ConfigType.TOPIC, n.topic, [AlterableConfig("retention.ms", "9")])]
        ),
        right(Operation.ALTER_CONFIGS, TOPIC, TOPIC_DENIED),
        note="of a topic",
    ),
    Kind(
        "alter_configs",
        2,
        lambda n: AlterConfigsRequest([AlterConfigsResource(ConfigType.BROKER, _BROKER)]),
        right(Operation.ALTER_CONFIGS, CLUSTER, CLUSTER_DENIED),
        note="of a broker",
    ),
    Kind(
        "incremental_alter_configs",
        1,
        lambda n: _change(ConfigType.TOPIC, n.topic, "retention.ms", "9"),
        right(Operation.ALTER_CONFIGS, TOPIC, TOPIC_DENIED),
        note="of a topic",
    ),
    Kind(
        "incremental_alter_configs",
        1,
        lambda n: IncrementalAlterConfigsRequest([ChangedResource(ConfigType.BROKER, _BROKER)]),
        right(Operation.ALTER_CONFIGS, CLUSTER, CLUSTER_DENIED),
        note="of a broker",
    ),
    Kind(
        "incremental_alter_configs",
        1,
        lambda n: _change(ConfigType.BROKER_LOGGER, _BROKER, _LOGGER.name, "ERROR"),
        right(Operation.ALTER_CONFIGS, CLUSTER, CLUSTER_DENIED),
        note="of loggers",
    ),
    Kind(
        "incremental_alter_configs",
        1,
        lambda n: IncrementalAlterConfigsRequest(
            [ChangedResource(ConfigType.CLIENT_METRICS, "m", [Change("interval.ms", 0, "50000")])]
        ),
        right(Operation.ALTER_CONFIGS, CLUSTER, CLUSTER_DENIED),
        note="of client metrics",
    ),
    Kind(
        "incremental_alter_configs",
        1,
        lambda n: IncrementalAlterConfigsRequest(
            [ChangedResource(ConfigType.GROUP, n.group, [Change("consumer.session.timeout.ms", 0, "50000")])]
        ),
        right(Operation.ALTER_CONFIGS, GROUP, GROUP_DENIED),
        note="of a group",
    ),
    Kind(
        "describe_configs",
        4,
        lambda n: _config(ConfigType.TOPIC, n.topic),
        right(Operation.DESCRIBE_CONFIGS, TOPIC, TOPIC_DENIED),
        note="of a topic",
    ),
    Kind(
        "describe_configs",
        4,
        lambda n: _config(ConfigType.BROKER, _BROKER),
        right(Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_DENIED),
        note="of a broker",
    ),
    Kind(
        "describe_configs",
        4,
        lambda n: _config(ConfigType.BROKER, ""),
        right(Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_DENIED),
        note="of all brokers",
    ),
    Kind(
        "describe_configs",
        4,
        lambda n: _config(ConfigType.BROKER_LOGGER, _BROKER),
        right(Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_DENIED),
        note="of loggers",
    ),
    Kind(
        "describe_configs",
        4,
        lambda n: _config(ConfigType.CLIENT_METRICS, "m"),
        right(Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_DENIED),
        note="of client metrics",
    ),
    Kind(
        "describe_configs",
        4,
        lambda n: _config(ConfigType.GROUP, n.group),
        right(Operation.DESCRIBE_CONFIGS, GROUP, GROUP_DENIED),
        note="of a group",
    ),
    Kind(
        "list_config_resources",
        1,
        lambda n: ListConfigResourcesRequest([]),
        right(Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_DENIED),
    ),
    Kind(
        "alter_client_quotas",
        1,
        lambda n: AlterClientQuotasRequest(
            [QuotaEntry([QuotaEntity("user", "u")], [OpData("producer_byte_rate", 1.0)])]
        ),
        right(Operation.ALTER_CONFIGS, CLUSTER, CLUSTER_DENIED),
    ),
    Kind(
        "describe_client_quotas",
        1,
        lambda n: DescribeClientQuotasRequest(),
        right(Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_DENIED),
    ),
]
