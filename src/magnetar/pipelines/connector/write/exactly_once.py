"""Exactly once: the transactions of the tasks of a micro-batch, and the decision that makes all of them visible.

Two steps, with nothing but Kafka's protocol; `docs/internals/pipelines.md` tells the whole story.

* Each task writes inside a transaction of its own, `<query id>-<task>`, and leaves it open.  Taking over the id fences
  and aborts what an older attempt left.  A task without rows opens none.
* When all tasks are done, the driver makes sure that their transactions are still theirs, records the decision
  (`decisions.py`), commits each of them, and records that this is finished.

Before anything else, a task and the driver look the last decision up.  One that is unfinished they finish; a batch that
was decided is not written again.  So a batch is written again exactly when nothing of it can ever become visible.

Spark is not imported here: `stream.py` is what it sees.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from magnetar.client.kafka.cluster import Cluster
from magnetar.client.kafka.errors import Fenced, KafkaClientError, Refused
from magnetar.client.kafka.transactions import (
    Producer,
    TopicPartition,
    abort_left_over,
    add_partitions,
    end_transaction,
    transactional_producer,
)
from magnetar.pipelines.connector.options import OptionError
from magnetar.pipelines.connector.write.decisions import (
    Decision,
    DecisionStore,
    TaskTransaction,
    transactional_id,
)
from magnetar.pipelines.connector.write.errors import BatchNotDecided, RowsLost
from magnetar.pipelines.connector.write.options import WriteOptions
from magnetar.wire.kafka.error_codes import ErrorCode

if TYPE_CHECKING:
    import pyarrow as pa

log: Final = logging.getLogger(__name__)

# A transaction that has less than this left is not committed: what is left must suffice to commit all of them.
MARGIN_S_MAX: Final = 30.0
MARGIN_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What one task tells the driver.

    producer  of its transaction; None when it has opened none
    written   rows by partition; any of them will do for asking whether the transaction is still open
    began_s   by the worker's clock, in seconds since the epoch
    """

    query_id: str
    task: int
    producer: Producer | None = None
    written: Mapping[TopicPartition, int] = field(default_factory=dict)
    began_s: float = 0.0

    @property
    def rows(self) -> int:
        return sum(self.written.values())


# --- a task ----------------------------------------------------------------------------------------------------------


def write_task(
    cluster: Cluster,
    options: WriteOptions,
    query_id: str,
    batch_id: int,
    task: int,
    batches: "Iterator[pa.RecordBatch]",
) -> TaskResult:
    """Write the rows into a transaction, which is open and holds all of them when this returns.

    Nothing is written when the batch was decided before.

    Raises:
        OptionError, RowError, KafkaClientError, RowsLost.
    """
    if settle(cluster, options, query_id).batch_id >= batch_id:
        log.warning("batch %d of query %s is in its topic already: not written again", batch_id, query_id)
        for _ in batches:
            pass  # Spark wants to get rid of them
        return TaskResult(query_id, task)
    return write_transaction(cluster, options, query_id, task, batches)


def write_transaction(
    cluster: Cluster, options: WriteOptions, query_id: str, task: int, batches: "Iterator[pa.RecordBatch]"
) -> TaskResult:
    """As `write_task`, of a batch that no earlier attempt can have decided."""
    try:
        producer = transactional_producer(
            cluster, transactional_id(query_id, task), options.transaction_timeout_ms
        )
    except Refused as refused:
        if refused.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise OptionError(
                f"option kafka.transaction.timeout.ms: {options.transaction_timeout_ms} is more than the broker allows;"
                " make it at most its transaction.max.timeout.ms"
            ) from refused
        raise
    began_s = time.time()
    from magnetar.pipelines.connector.write.rows import RowWriter

    rows = RowWriter(cluster, options, producer, lambda new: add_partitions(cluster, producer, new))
    try:
        for batch in batches:
            rows.write(batch)
        rows.flush()
    finally:
        rows.close()
    return TaskResult(query_id, task, producer, rows.written, began_s)


def abort_tasks(cluster: Cluster, done: Sequence[TaskResult]) -> None:
    """Abort what tasks of a batch have written if it cannot have been decided; otherwise a later attempt does."""
    for one in done:
        if one.producer is None:
            continue
        try:
            end_transaction(cluster, one.producer, commit=False)
        except Fenced:
            continue  # it is over already
        except KafkaClientError as error:
            log.warning("a transaction waits to be aborted: %s", error)


# --- the driver ------------------------------------------------------------------------------------------------------


def commit_batch(cluster: Cluster, options: WriteOptions, done: Sequence[TaskResult], batch_id: int) -> None:
    """Make the output of the tasks of a batch visible, once.

    Raises:
        BatchNotDecided: nothing is visible, and the batch has to be written again.
        RowsLost: see `settle`.
        KafkaClientError: it is not known how far it came: the batch has to be committed again.
    """
    query_id = done[0].query_id
    written = [one for one in done if one.producer is not None]
    last = settle(cluster, options, query_id)
    if last.batch_id >= batch_id:
        # Decided by an earlier run; tasks that looked too early have written all the same.
        abort_tasks(cluster, written)
        return
    if written:
        _check_open(cluster, options, written, f"batch {batch_id}")
        decided = Decision(
            batch_id,
            False,
            tuple(
                TaskTransaction(one.task, one.producer.producer_id, one.producer.epoch, one.rows)
                for one in written
                if one.producer is not None
            ),
        )
        DecisionStore(cluster, query_id, options.decision_topic).record(decided)
        _finish(cluster, options, query_id, decided)
        # Of an attempt that was killed, where this one has fewer tasks: it would hold up readers until it lapses.
        abort_left_over(cluster, f"{query_id}-")


def commit_job(cluster: Cluster, options: WriteOptions, done: Sequence[TaskResult]) -> None:
    """Make the output of the tasks of a batch job visible.  No later job could finish it, so nothing is recorded.

    Raises:
        BatchNotDecided: nothing is visible.
        KafkaClientError: a part of it may be.
    """
    written = [one for one in done if one.producer is not None]
    if written:
        _check_open(cluster, options, written, "the job")
        for one in written:
            assert one.producer is not None
            end_transaction(cluster, one.producer, commit=True)


def _check_open(cluster: Cluster, options: WriteOptions, written: Sequence[TaskResult], what: str) -> None:
    """Whether every transaction is still its task's, and will be for long enough to commit it."""
    timeout_s = options.transaction_timeout_ms / 1000
    margin_s = min(MARGIN_S_MAX, MARGIN_SHARE * timeout_s)
    age_s = time.time() - min(one.began_s for one in written)
    if age_s > timeout_s - margin_s:
        raise BatchNotDecided(
            f"{what} took {age_s:.0f} s, and its transactions end after {timeout_s:.0f} s: nothing of it is visible;"
            " make batches smaller (maxOffsetsPerTrigger) or kafka.transaction.timeout.ms longer"
        )
    for one in written:
        assert one.producer is not None
        try:
            add_partitions(cluster, one.producer, [next(iter(one.written))])
        except Fenced as fenced:
            raise BatchNotDecided(
                f"{what} was taken over: {fenced}; nothing of it is visible, and it is written again when it starts"
                " again.  Is another query running with the same checkpoint?"
            ) from fenced


def settle(cluster: Cluster, options: WriteOptions, query_id: str) -> Decision:
    """The last decision; if it is unfinished, finish it first.

    Raises:
        RowsLost: a transaction that was decided has ended some other way, and failOnDataLoss is true.
        KafkaClientError, SinkError.
    """
    decisions = DecisionStore(cluster, query_id, options.decision_topic)
    last = decisions.last()
    if not last.is_finished:
        _finish(cluster, options, query_id, last)
    return last


def _finish(cluster: Cluster, options: WriteOptions, query_id: str, decision: Decision) -> None:
    """Commit every transaction of a decision, and record that this was done."""
    decisions = DecisionStore(cluster, query_id, options.decision_topic)
    lost: list[tuple[TaskTransaction, Fenced]] = []
    for one in decision.transactions:
        try:
            end_transaction(cluster, one.producer(query_id), commit=True)
        except Fenced as fenced:
            lost.append((one, fenced))
    if lost:
        now = decisions.last()
        if now.batch_id > decision.batch_id or (now.batch_id == decision.batch_id and now.is_finished):
            return  # another task has finished it, and the ids are at the next batch
        _lost(options, query_id, decision, lost)
    decisions.record(Decision(decision.batch_id))


def _lost(
    options: WriteOptions,
    query_id: str,
    decision: Decision,
    lost: Sequence[tuple[TaskTransaction, Fenced]],
) -> None:
    rows = sum(one.rows for one, _ in lost)
    tasks = ", ".join(str(one.task) for one, _ in lost)
    text = (
        f"batch {decision.batch_id} of query {query_id} was decided, but the transactions of {len(lost)} of its"
        f" {len(decision.transactions)} tasks ({tasks}) ended before they could be committed: {rows} rows are not in"
        f" their topics ({lost[0][1]})"
    )
    if options.fail_on_data_loss:
        raise RowsLost(f"{text}.  To go on without them, start the query once with failOnDataLoss=false")
    log.error("%s; going on, as failOnDataLoss is false", text)
