"""Settings of transactions, with the names and defaults of Apache Kafka's broker (dots as underscores)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Milliseconds."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
