"""The port of a replicator's target: what a provider of one type of targets must do.

A provider is a class without arguments.  `registry.py` finds it by its type.  `validate_properties` also runs in the
server, so the module of a provider imports its client library only in `create_producer`.

    class MyProvider:
        type = "MyTarget"

        def validate_properties(self, namespace, policies): ...
        def create_producer(self, topic, policies): return MyProducer(...)

With an attribute `reads_fields` that is true, a provider gets the fields of values, too, as far as topics have schemas.

`magnetar replicator-service` knows no offsets: it numbers records anew at each start.  It uses a provider only if that
has a method `works_without_offsets(policies)`, and this returns True.

A producer gets the records of a topic in the order of their partitions.  The records between two calls of `flush` are a
chunk.  If a chunk fails, the producer gets all of it again, in order, so a target may get records twice.  It never gets
a record before the previous one of its partition.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from magnetar.replicators.policies import ReplicatorPolicies


class ReplicatedRecord(NamedTuple):
    """One record of a topic, as Kafka's clients see it, whichever client wrote it (docs/reference/interop.md).

    `offset` is its number in its partition: both together name it.  `timestamp_ms` is Kafka's timestamp; of a Pulsar
    message it is the event time, or the publish time if there is none.  A `value` of None deletes the key.  `fields` is
    what the value is by the topic's schema, for providers that want it (`reads_fields`); None if there is no schema, or
    the value does not follow it.
    """

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    fields: Mapping[str, Any] | None = None


class ReplicatorProducer(Protocol):
    """Writes to one target; one thread uses it.

    Any method but `close` raises:
        TargetUnavailable: the target does not take records now.  The caller closes this producer, and sends the chunk
            again by another one, after a pause.
        CredentialsRefused: the target refuses the login or a right.  The caller stops the replicator.
    """

    def send(self, records: Sequence[ReplicatedRecord]) -> None:
        """Take the next records of one partition, in their order.  They need not be at the target yet."""
        ...

    def flush(self) -> None:
        """Return when the target has every record that was sent since the last flush.

        Raises:
            PoisonRecords: the target never takes these records, and has all others.
        """
        ...

    def close(self) -> None:
        """Release everything without waiting: records that were sent and not flushed may be lost."""
        ...


class ReplicatorProvider(Protocol):
    """See the module's text."""

    type: str

    def validate_properties(self, namespace: str, policies: ReplicatorPolicies) -> None:
        """Check what a user has configured for `namespace`, without a connection.

        Raises:
            ReplicatorConfigError: one sentence that names the property and the next step.
        """
        ...

    def create_producer(self, topic: str, policies: ReplicatorPolicies) -> ReplicatorProducer:
        """A producer that writes the records of `topic` to its target.

        Raises:
            ReplicatorConfigError: the policies cannot be used, now or later.
            TargetUnavailable, CredentialsRefused: as a producer's methods.
        """
        ...
