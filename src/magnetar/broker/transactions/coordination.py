"""What the coordinators of both protocols share: the times, where they store, and which partitions they mark."""

from dataclasses import dataclass

from magnetar.base.times import Times
from magnetar.broker.producers.ids import ProducerIds
from magnetar.broker.transactions.markers import FindPartition
from magnetar.broker.transactions.settings import TransactionSettings
from magnetar.ledger.shared_commits import SharedCommits
from magnetar.metadata.store import MetadataStore


@dataclass(frozen=True, slots=True)
class Coordination:
    """See the module's text.  Records are written by `commits`, and read from `metadata` at the start."""

    times: Times
    metadata: MetadataStore
    commits: SharedCommits
    producer_ids: ProducerIds
    find_partition: FindPartition
    settings: TransactionSettings
