"""A streaming query's batches are in the topic once: whichever process dies, wherever, however often.

The first test is the proof: the driver dies at its first request, at its second... until a run needs no more.  The
others name the cases one by one.
"""

from collections.abc import Iterator
from itertools import count

import pytest

from magnetar.client.kafka.cluster import Cluster
from magnetar.client.kafka.connection import LIST_TRANSACTIONS
from magnetar.client.kafka.errors import Fenced
from magnetar.client.kafka.transactions import add_partitions, end_transaction
from magnetar.pipelines.connector.options import OptionError
from magnetar.pipelines.connector.write.decisions import Decision, DecisionStore, TaskTransaction
from magnetar.pipelines.connector.write.errors import BatchNotDecided, RowsLost
from magnetar.pipelines.connector.write.exactly_once import (
    TaskResult,
    abort_tasks,
    commit_batch,
    commit_job,
    settle,
    write_task,
    write_transaction,
)
from magnetar.pipelines.connector.write.options import WriteOptions
from magnetar.testing.server import MagnetarProcess
from magnetar.wire.kafka.messages.list_transactions import ListTransactionsRequest
from tests.integration.pipelines.sink_kit import (
    Died,
    MortalCluster,
    options_for,
    read_committed,
    rows,
    run_batch,
    values_of,
    wait_until,
)

PARTITIONS = 2
TASKS = 3


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(settings={"num.partitions": str(PARTITIONS)}) as running:
        yield running
        assert "Traceback" not in running.log, running.log[-5000:]


@pytest.fixture
def cluster(server: MagnetarProcess) -> Iterator[Cluster]:
    made = Cluster(server.bootstrap, patience_s=20)
    yield made
    made.close()


def written(
    cluster: Cluster, options: WriteOptions, query: str, batch: int, tasks: int = TASKS
) -> list[TaskResult]:
    return [
        write_task(cluster, options, query, batch, task, iter([rows([f"{query} {batch} {task}"])]))
        for task in range(tasks)
    ]


def decided(done: list[TaskResult], batch: int) -> Decision:
    return Decision(
        batch,
        False,
        tuple(
            TaskTransaction(one.task, one.producer.producer_id, one.producer.epoch, one.rows)
            for one in done
            if one.producer is not None
        ),
    )


def expected(query: str, batches: int, tasks: int = TASKS) -> list[str]:
    return [f"{query} {batch} {task}" for batch in range(batches) for task in range(tasks)]


@pytest.mark.parametrize("answered", [False, True], ids=["before the request", "after the answer"])
def test_dying_at_any_request(server: MagnetarProcess, answered: bool) -> None:
    topic = f"mortal-{answered}"
    options = options_for(server, topic=topic)
    everything: list[str] = []
    for at_request in count(1):
        query = f"{topic}-{at_request:03}"
        batches = [[[f"{query} {batch} {task}"] for task in range(TASKS)] for batch in range(2)]
        everything += [value for batch in batches for (value,) in batch]
        cluster: Cluster = MortalCluster(server.bootstrap, at_request, answered=answered)
        died = False
        for batch, tasks in enumerate(batches):
            try:
                run_batch(cluster, options, query, batch, tasks)
            except Died:
                # Spark starts again with the batch that it has not noted as committed.
                died = True
                cluster.close()
                cluster = Cluster(server.bootstrap)
                run_batch(cluster, options, query, batch, tasks)
        cluster.close()
        if not died:
            break
    assert at_request > 2 * TASKS
    assert values_of(read_committed(server, topic, PARTITIONS)) == sorted(everything)


def test_nothing_is_visible_before_the_commit_and_all_of_it_after(
    server: MagnetarProcess, cluster: Cluster
) -> None:
    options = options_for(server, topic="visible")
    run_batch(cluster, options, "visible", 0, [["first"]])
    done = written(cluster, options, "visible", 1)
    assert settle(cluster, options, "visible") == Decision(0)
    commit_batch(cluster, options, done, 1)
    assert settle(cluster, options, "visible") == Decision(1)
    assert values_of(read_committed(server, "visible", PARTITIONS)) == [
        "first", "visible 1 0", "visible 1 1", "visible 1 2",
    ]  # fmt: skip


def test_a_batch_job_is_visible_when_all_its_tasks_are_done(
    server: MagnetarProcess, cluster: Cluster
) -> None:
    options = options_for(server, topic="job")
    failed = write_transaction(cluster, options, "job", 0, iter([rows(["of an attempt that failed"])]))
    done = [
        write_transaction(cluster, options, "job", task, iter([rows([str(task)])])) for task in range(TASKS)
    ]
    with pytest.raises(BatchNotDecided, match="the job was taken over"):
        commit_job(cluster, options, [failed, *done[1:]])
    commit_job(cluster, options, done)
    assert values_of(read_committed(server, "job", PARTITIONS)) == ["0", "1", "2"]


@pytest.mark.parametrize("committed_before", range(TASKS + 1))
def test_a_driver_killed_after_the_decision(
    server: MagnetarProcess, cluster: Cluster, committed_before: int
) -> None:
    """The server is killed, too: decision and open transactions are durable."""
    query = f"decided-{committed_before}"
    options = options_for(server, topic=query)
    done = written(cluster, options, query, 0)
    DecisionStore(cluster, query, options.decision_topic).record(decided(done, 0))
    for one in done[:committed_before]:
        assert one.producer is not None
        end_transaction(cluster, one.producer, commit=True)
    server.kill()
    server.restart()
    again = written(cluster, options, query, 0)
    assert all(one.producer is None for one in again)
    commit_batch(cluster, options, again, 0)
    assert values_of(read_committed(server, query, PARTITIONS)) == expected(query, 1)


def test_an_attempt_that_was_not_decided_is_replaced(server: MagnetarProcess, cluster: Cluster) -> None:
    options = options_for(server, topic="replaced")
    first = written(cluster, options, "replaced", 0)
    server.kill()
    server.restart()
    second = written(cluster, options, "replaced", 0)
    with pytest.raises(BatchNotDecided, match="taken over"):
        commit_batch(cluster, options, first, 0)
    commit_batch(cluster, options, second, 0)
    assert values_of(read_committed(server, "replaced", PARTITIONS)) == expected("replaced", 1)


def test_an_attempt_with_fewer_tasks_leaves_nothing_open(server: MagnetarProcess, cluster: Cluster) -> None:
    options = options_for(server, topic="fewer")
    written(cluster, options, "fewer", 0, tasks=5)
    run_batch(cluster, options, "fewer", 0, [["all of it"], [], []])
    answer = cluster.any_node().call(LIST_TRANSACTIONS, ListTransactionsRequest(state_filters=["Ongoing"]))
    assert [one.transactional_id for one in answer.transaction_states] == []
    assert values_of(read_committed(server, "fewer", PARTITIONS)) == ["all of it"]


def test_a_failed_batch_is_aborted_and_a_decided_one_is_not(
    server: MagnetarProcess, cluster: Cluster
) -> None:
    options = options_for(server, topic="aborted")
    abort_tasks(cluster, written(cluster, options, "aborted", 0))
    done = written(cluster, options, "aborted", 0)
    commit_batch(cluster, options, done, 0)
    abort_tasks(cluster, done)
    commit_batch(cluster, options, done, 0)
    assert values_of(read_committed(server, "aborted", PARTITIONS)) == expected("aborted", 1)


def test_transactions_that_lapse_before_the_decision(server: MagnetarProcess, cluster: Cluster) -> None:
    options = options_for(server, topic="late", kafka_transaction_timeout_ms="2000")
    done = written(cluster, options, "late", 0)
    wait_until(lambda: is_over(cluster, done[0]), "the server has ended the transaction")
    with pytest.raises(BatchNotDecided, match="make batches smaller"):
        commit_batch(cluster, options, done, 0)
    assert settle(cluster, options, "late").batch_id < 0
    commit_batch(
        cluster,
        options_for(server, topic="late"),
        written(cluster, options_for(server, topic="late"), "late", 0),
        0,
    )
    assert values_of(read_committed(server, "late", PARTITIONS)) == expected("late", 1)


def test_transactions_that_lapse_after_the_decision_are_never_lost_in_silence(
    server: MagnetarProcess, cluster: Cluster
) -> None:
    options = options_for(server, topic="lapsed", kafka_transaction_timeout_ms="2000")
    done = written(cluster, options, "lapsed", 0)
    DecisionStore(cluster, "lapsed", options.decision_topic).record(decided(done, 0))
    assert done[0].producer is not None
    end_transaction(cluster, done[0].producer, commit=True)
    wait_until(
        lambda: is_over(cluster, done[1]) and is_over(cluster, done[2]),
        "the server has ended the transactions",
    )
    for _ in range(2):  # it stays an error
        with pytest.raises(RowsLost, match=r"2 of its 3 tasks \(1, 2\).*2 rows are not in their topics"):
            written(cluster, options, "lapsed", 0)
    going_on = options_for(server, topic="lapsed", failOnDataLoss="false")
    run_batch(cluster, going_on, "lapsed", 0, [["not again"]])
    run_batch(cluster, options, "lapsed", 1, [["next"]])
    assert values_of(read_committed(server, "lapsed", PARTITIONS)) == ["lapsed 0 0", "next"]


def is_over(cluster: Cluster, done: TaskResult) -> bool:
    assert done.producer is not None
    try:
        add_partitions(cluster, done.producer, list(done.written)[:1])
    except Fenced:
        return True
    return False


def test_a_second_query_with_the_same_checkpoint_is_found_out(
    server: MagnetarProcess, cluster: Cluster
) -> None:
    options = options_for(server, topic="twice")
    mine = written(cluster, options, "twice", 0)
    theirs = written(cluster, options, "twice", 0, tasks=1)
    with pytest.raises(BatchNotDecided, match="same checkpoint"):
        commit_batch(cluster, options, mine, 0)
    commit_batch(cluster, options, theirs, 0)
    assert values_of(read_committed(server, "twice", PARTITIONS)) == ["twice 0 0"]


def test_a_time_out_that_the_broker_does_not_allow(server: MagnetarProcess, cluster: Cluster) -> None:
    options = options_for(server, topic="t", kafka_transaction_timeout_ms="900001")
    with pytest.raises(OptionError, match=r"option kafka\.transaction\.timeout\.ms: 900001"):
        written(cluster, options, "long", 0)
