"""What a task does: it reads slices of a topic and sends their records to a target, without Spark.

The task sends a chunk until the target has it, and only then reads the next one.  So records of a partition arrive in
order, and those that the task sends again arrive in order, too.  Trouble that outlasts `PAUSES_S` ends the task,
because a task that waits holds a core which other pipelines need: the worker starts the replicator again, after pauses
of up to a minute.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from magnetar.pipelines.kinds.dead_letters import Origin, letters
from magnetar.pipelines.kinds.replicator.config import ReplicatorConfig
from magnetar.pipelines.kinds.replicator.fields import FieldReader
from magnetar.pipelines.kinds.replicator.records import Readable, chunks, rows_of
from magnetar.replicators.errors import (
    CredentialsRefused,
    PoisonRecords,
    ReplicatorConfigError,
    TargetUnavailable,
)
from magnetar.replicators.provider import ReplicatedRecord, ReplicatorProducer

PAUSES_S: Final = (0.1, 0.2, 0.4, 0.8)
Failure = TargetUnavailable | CredentialsRefused | ReplicatorConfigError


class Opener(Protocol):
    """Where the producer comes from (`producers.Producers`)."""

    def get(self) -> ReplicatorProducer: ...

    def drop(self) -> None: ...


@dataclass
class ReplicatorTask:
    """`write_letters` returns when the dead letters that it gets are stored; the task lets its errors
    through.  `fields` is None unless the target wants the fields of values.
    """

    config: ReplicatorConfig
    producers: Opener
    write_letters: Callable[[pa.RecordBatch], None]
    sleep: Callable[[float], None] = time.sleep
    fields: FieldReader | None = None
    sent: int = 0
    dead: int = 0

    def run(self, slices: Iterable[Readable]) -> Failure | None:
        """Send all records of the slices to the target; returns why it has not taken them, or None.

        Raises:
            SourceError: the server does not give the records.
        """
        parts: Iterator[Readable] = iter(slices)
        for part in parts:
            for chunk in chunks(part, self.fields) if part.from_offset < part.to_offset else ():
                failure = self._deliver(part, chunk)
                if failure is not None:
                    return failure
        return None

    def _deliver(self, part: Readable, chunk: Sequence[ReplicatedRecord]) -> Failure | None:
        for pause_s in (*PAUSES_S, None):
            try:
                producer = self.producers.get()
                producer.send(chunk)
                producer.flush()
            except PoisonRecords as found:
                self._bury(part, found)
                self.sent += len(chunk) - len(found.records)
                return None
            except TargetUnavailable as error:
                self.producers.drop()
                if pause_s is None:
                    return error
                self.sleep(pause_s)
            except (CredentialsRefused, ReplicatorConfigError) as error:
                self.producers.drop()
                return error
            else:
                self.sent += len(chunk)
                return None
        raise AssertionError("the last pause is None")

    def _bury(self, part: Readable, found: PoisonRecords) -> None:
        """Write the records that the target never takes to the dead-letter topic."""
        rows = rows_of([record for record, _ in found.records])
        reasons = {number: reason for number, (_, reason) in enumerate(found.records)}
        to = self.config.dead_letter_topic(part.topic)
        self.write_letters(letters(rows, reasons, Origin(self.config.name, part.topic, part.partition, to)))
        self.dead += len(reasons)
