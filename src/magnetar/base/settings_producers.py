"""Settings of Pulsar's producers, by the keys of Pulsar's broker."""

from typing import Final

from magnetar.base.config import ConfigType
from magnetar.base.server_key import ServerKey

DEDUPLICATION: Final = "brokerDeduplicationEnabled"

PRODUCER_KEYS: Final = (
    ServerKey(
        DEDUPLICATION,
        ConfigType.BOOLEAN,
        "false",
        "Whether messages that Pulsar's producers send again are stored once, where no policy says so.",
    ),
)
