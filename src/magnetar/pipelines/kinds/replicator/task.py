"""What a task does: it reads slices of a topic and sends their records to a target, without Spark.

The task sends a chunk until the target has it (`replicators/delivery.py`), and only then reads the next one.  Trouble
that lasts ends the task, because a task that waits holds a core which other pipelines need.  The worker starts the
replicator again, after pauses of up to a minute.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from magnetar.pipelines.kinds.dead_letters import Origin, letters
from magnetar.pipelines.kinds.replicator.config import ReplicatorConfig
from magnetar.pipelines.kinds.replicator.fields import FieldReader
from magnetar.pipelines.kinds.replicator.records import Readable, chunks, rows_of
from magnetar.replicators.delivery import Opener, deliver
from magnetar.replicators.errors import CredentialsRefused, ReplicatorConfigError, TargetUnavailable
from magnetar.replicators.provider import ReplicatedRecord

Failure = TargetUnavailable | CredentialsRefused | ReplicatorConfigError


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
        try:
            poison = deliver(self.producers, chunk, self.sleep)
        except (TargetUnavailable, CredentialsRefused, ReplicatorConfigError) as error:
            return error
        if poison:
            self._bury(part, poison)
        self.sent += len(chunk) - len(poison)
        return None

    def _bury(self, part: Readable, poison: Sequence[tuple[ReplicatedRecord, str]]) -> None:
        """Write the records that the target never takes to the dead-letter topic."""
        rows = rows_of([record for record, _ in poison])
        reasons = {number: reason for number, (_, reason) in enumerate(poison)}
        to = self.config.dead_letter_topic(part.topic)
        self.write_letters(letters(rows, reasons, Origin(self.config.name, part.topic, part.partition, to)))
        self.dead += len(reasons)
