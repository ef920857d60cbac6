"""Settings of transactions, by the keys of Kafka's and Pulsar's brokers."""

from typing import Final

from magnetar.base.config import ConfigType
from magnetar.base.server_key import ServerKey

TRANSACTION_KEYS: Final = (
    ServerKey(
        "transaction.max.timeout.ms",
        ConfigType.INT,
        "900000",
        "The longest time-out of a transaction.",
        minimum=1,
    ),
    ServerKey(
        "transactional.id.expiration.ms",
        ConfigType.INT,
        "604800000",
        "How long an idle transactional id is kept.",
        minimum=1,
    ),
    ServerKey(
        "max.transactions.per.coordinator",
        ConfigType.INT,
        "50000",
        "How many transactional ids are kept, and how many of Pulsar's transactions may be open. Of the ids a client"
        " that has logged in may have half of what others leave: then its new ones take the places of its own.",
        minimum=1,
    ),
    ServerKey(
        "transactionCoordinatorEnabled",
        ConfigType.BOOLEAN,
        "true",
        "Whether there are Pulsar's transactions. Without them clients are refused, and what was begun before is ended"
        " all the same. Kafka's are always there.",
    ),
    ServerKey(
        "maxActiveTransactionsPerCoordinator",
        ConfigType.INT,
        "0",
        "How many of Pulsar's transactions may be open; 0: as many as `max.transactions.per.coordinator` says. A client"
        " that has logged in may have half of what others leave.",
        minimum=0,
    ),
    ServerKey(
        "pulsar.transaction.max.timeout.ms",
        ConfigType.LONG,
        "86400000",
        "The longest time-out of Pulsar's transactions. The server refuses to begin one with a longer one, because its"
        " topics' readers would wait so long for a client that has died. Apache Pulsar has no such limit.",
        minimum=1,
    ),
)
