"""Settings of transactions, with the names and defaults of Apache Kafka's broker (dots as underscores).

The number of transactional ids has no limit there; its name is Redpanda's.  Those of Pulsar's transactions are Apache
Pulsar's, but for the longest time-out, which has no limit there.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Settings whose names end in `_ms` are in milliseconds."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    max_transactions_per_coordinator: int = 50_000
    transaction_coordinator_enabled: bool = True
    max_active_transactions_per_coordinator: int = 0
    # Flink's sinks ask for three hours; Kafka's limit would refuse them.
    pulsar_transaction_max_timeout_ms: int = 86_400_000

    @property
    def pulsar_open_max(self) -> int:
        """How many of Pulsar's transactions may be open."""
        return self.max_active_transactions_per_coordinator or self.max_transactions_per_coordinator
