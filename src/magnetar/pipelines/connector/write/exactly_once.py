"""Exactly once: the transactions of the tasks of a micro-batch, and the decision that makes all of them visible.

There are two steps, which use only Kafka's protocol; `docs/internals/pipelines.md` explains all of it.

* Each task writes in a transaction of its own, `<query id>-<task>`, and leaves it open.  Initialising that id fences
  older attempts, and aborts their transaction.  A task without rows opens none.
* When all tasks are done, the driver checks that their transactions are still open, records the decision
  (`decisions.py`), commits each transaction, and records that this is finished.

A task and the driver first look up the last decision.  They finish it if it is unfinished, and a decided batch is not
written again.  So a batch is written again exactly if no part of it can ever become visible.

This module does not import Spark, which calls `stream.py`.
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

# A transaction with less time left than this is not committed, because committing all of them takes time.
MARGIN_S_MAX: Final = 30.0
MARGIN_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What one task returns to the driver.

    producer  of its transaction; None if it has opened none
    written   rows by partition; any of these partitions can show whether the transaction is still open
    began_s   of the worker's clock, in seconds since the epoch
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
    """Write the rows in a transaction, which is open and has all of them when this returns.

    Writes nothing if the batch was decided before.

    Raises:
        OptionError, RowError, KafkaClientError, RowsLost.
    """
    if settle(cluster, options, query_id).batch_id >= batch_id:
        log.warning(
            "batch %d of query %s is in its topic already: the query does not write it again",
            batch_id,
            query_id,
        )
        for _ in batches:
            pass  # Spark expects that all rows are consumed
        return TaskResult(query_id, task)
    return write_transaction(cluster, options, query_id, task, batches)


def write_transaction(
    cluster: Cluster, options: WriteOptions, query_id: str, task: int, batches: "Iterator[pa.RecordBatch]"
) -> TaskResult:
    """As `write_task`, for a batch that no earlier attempt can have decided."""
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
    """Abort the transactions of a batch's tasks, if the batch cannot have been decided."""
    for one in done:
        if one.producer is None:
            continue
        try:
            end_transaction(cluster, one.producer, commit=False)
        except Fenced:
            continue  # it has ended already
        except KafkaClientError as error:
            log.warning("a transaction waits to be aborted: %s", error)


# --- the driver ------------------------------------------------------------------------------------------------------


def commit_batch(cluster: Cluster, options: WriteOptions, done: Sequence[TaskResult], batch_id: int) -> None:
    """Make the output of the tasks of a batch visible, once.

    Raises:
        BatchNotDecided: nothing is visible, and the batch must be written again.
        RowsLost: see `settle`.
        KafkaClientError: it is not known what was done: the batch must be committed again.
    """
    query_id = done[0].query_id
    written = [one for one in done if one.producer is not None]
    last = settle(cluster, options, query_id)
    if last.batch_id >= batch_id:
        # An earlier run has decided it; tasks that looked too early have written nevertheless.
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
        # Transactions of a killed attempt with more tasks would delay readers until they time out.
        abort_left_over(cluster, f"{query_id}-")


def commit_job(cluster: Cluster, options: WriteOptions, done: Sequence[TaskResult]) -> None:
    """Make the output of the tasks of a batch job visible.  No later job could finish it, so no decision is recorded.

    Raises:
        BatchNotDecided: nothing is visible.
        KafkaClientError: a part of it may be visible.
    """
    written = [one for one in done if one.producer is not None]
    if written:
        _check_open(cluster, options, written, "the job")
        for one in written:
            assert one.producer is not None
            end_transaction(cluster, one.producer, commit=True)


def _check_open(cluster: Cluster, options: WriteOptions, written: Sequence[TaskResult], what: str) -> None:
    """Check that every transaction is still open, with enough time left to commit it."""
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
        RowsLost: a decided transaction has ended in another way, and failOnDataLoss is true. KafkaClientError,
            SinkError.
    """
    decisions = DecisionStore(cluster, query_id, options.decision_topic)
    last = decisions.last()
    if not last.is_finished:
        _finish(cluster, options, query_id, last)
    return last


def _finish(cluster: Cluster, options: WriteOptions, query_id: str, decision: Decision) -> None:
    """Commit every transaction of a decision, and record the decision as finished."""
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
            return  # another task has finished it, and the ids belong to the next batch
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
    log.error("%s; the query continues, because failOnDataLoss is false", text)
