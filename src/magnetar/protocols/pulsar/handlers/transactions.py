"""TC_CLIENT_CONNECT_REQUEST, NEW_TXN, ADD_PARTITION_TO_TXN, ADD_SUBSCRIPTION_TO_TXN, END_TXN: what clients say to the
coordinator.  WATCH_TC_ASSIGNMENTS and WATCH_TC_ASSIGNMENTS_CLOSE: how clients of Pulsar 5 find it.

There is one coordinator, number 0, so the topic by whose partitions clients count them has one partition
(`lookup.py`).  What is written and acknowledged in a transaction comes with SEND and ACK.  The coordinator never moves,
so WATCH_TC_ASSIGNMENTS is answered once, and nothing is watched.

Go's client names the transaction in SEND alone.  The server writes it into the entry's metadata, where readers look for
it.  With batches, pulsar-client-go 0.19 also names it in everything that the producer sends later.  The server then
counts that as part of the transaction or, once the transaction has ended, refuses it.  So use a producer that writes
nothing else for transactions, or `DisableBatching`.

If `transactionCoordinatorEnabled` is false, there is no coordinator, and the server refuses each command.  It also
refuses a time-out beyond `pulsar.transaction.max.timeout.ms`; Apache Pulsar accepts any.

Pulsar's brokers send END_TXN_ON_PARTITION and END_TXN_ON_SUBSCRIPTION to each other; the server refuses both.
"""

from typing import Any, Final

from magnetar.base.pulsar_listeners import PULSAR, PULSAR_TLS
from magnetar.broker.cluster.model import url_of
from magnetar.broker.errors import PolicyViolation
from magnetar.protocols.pulsar.errors import server_error
from magnetar.protocols.pulsar.registry import Answer, Command, Refusal
from magnetar.protocols.pulsar.session import PulsarSession
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandAddPartitionToTxn,
    CommandAddSubscriptionToTxn,
    CommandEndTxn,
    CommandNewTxn,
    CommandTcClientConnectRequest,
    CommandWatchTcAssignments,
    CommandWatchTcAssignmentsClose,
    CommandWatchTcAssignmentsUpdate,
    TcAssignment,
    TcAssignmentsSnapshot,
    TxnAction,
)

_COORDINATOR: Final = 0  # the one that there is

# For each command the type of its response, and the response's field in BaseCommand.
_ANSWERS: Final = {
    BaseCommand.TC_CLIENT_CONNECT_REQUEST: (
        BaseCommand.TC_CLIENT_CONNECT_RESPONSE,
        "tcClientConnectResponse",
    ),
    BaseCommand.NEW_TXN: (BaseCommand.NEW_TXN_RESPONSE, "newTxnResponse"),
    BaseCommand.ADD_PARTITION_TO_TXN: (
        BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE,
        "addPartitionToTxnResponse",
    ),
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN: (
        BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
        "addSubscriptionToTxnResponse",
    ),
    BaseCommand.END_TXN: (BaseCommand.END_TXN_RESPONSE, "endTxnResponse"),
    BaseCommand.END_TXN_ON_PARTITION: (
        BaseCommand.END_TXN_ON_PARTITION_RESPONSE,
        "endTxnOnPartitionResponse",
    ),
    BaseCommand.END_TXN_ON_SUBSCRIPTION: (
        BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE,
        "endTxnOnSubscriptionResponse",
    ),
}


def tc_client_connect(session: PulsarSession, command: CommandTcClientConnectRequest) -> Answer:
    session.cases.pulsar_transactions.connect(command.tc_id)
    return _answer(BaseCommand.TC_CLIENT_CONNECT_REQUEST, command)[0]


def watch_tc_assignments(session: PulsarSession, command: CommandWatchTcAssignments) -> Answer:
    session.cases.pulsar_transactions.connect(_COORDINATOR)
    endpoints = session.service.settings.endpoints.of(session.advertised_listener)
    assert endpoints is not None  # the listener that the client came to
    assigned = TcAssignment(
        tc_id=_COORDINATOR,
        broker_service_url=url_of(endpoints, PULSAR, session.local_host),
        broker_service_url_tls=url_of(endpoints, PULSAR_TLS, session.local_host),
    )
    return BaseCommand(
        type=BaseCommand.WATCH_TC_ASSIGNMENTS_UPDATE,
        watchTcAssignmentsUpdate=CommandWatchTcAssignmentsUpdate(
            watch_id=command.watch_id,
            snapshot=TcAssignmentsSnapshot(parallelism=1, assignments=[assigned]),
        ),
    )


def _refuse_watch(command: CommandWatchTcAssignments, error: Exception) -> BaseCommand:
    return BaseCommand(
        type=BaseCommand.WATCH_TC_ASSIGNMENTS_UPDATE,
        watchTcAssignmentsUpdate=CommandWatchTcAssignmentsUpdate(
            watch_id=command.watch_id, error=server_error(error), message=str(error)
        ),
    )


def stop_watching_tc(session: PulsarSession, command: CommandWatchTcAssignmentsClose) -> Answer:
    return None


async def new_txn(session: PulsarSession, command: CommandNewTxn) -> BaseCommand:
    # The field is named after seconds; clients send milliseconds.
    most, least = await session.cases.pulsar_transactions.begin(
        session.caller, command.tc_id, command.txn_ttl_seconds
    )
    answer, response = _answer(BaseCommand.NEW_TXN, command)
    response.txnid_most_bits, response.txnid_least_bits = most, least
    return answer


async def add_partition_to_txn(session: PulsarSession, command: CommandAddPartitionToTxn) -> BaseCommand:
    await session.cases.pulsar_transactions.add_partitions(session.caller, _id(command), command.partitions)
    return _named_answer(BaseCommand.ADD_PARTITION_TO_TXN, command)


async def end_txn(session: PulsarSession, command: CommandEndTxn) -> BaseCommand:
    await session.cases.pulsar_transactions.end(
        session.caller, _id(command), commit=command.txn_action == TxnAction.COMMIT
    )
    return _named_answer(BaseCommand.END_TXN, command)


def add_subscription_to_txn(session: PulsarSession, command: CommandAddSubscriptionToTxn) -> Answer:
    session.cases.pulsar_transactions.add_subscriptions(
        session.caller, _id(command), [(one.topic, one.subscription) for one in command.subscription]
    )
    return _named_answer(BaseCommand.ADD_SUBSCRIPTION_TO_TXN, command)


def _between_brokers(session: PulsarSession, command: Any) -> Answer:
    raise PolicyViolation("Only brokers of Pulsar send this command")


def _id(command: Any) -> tuple[int, int]:
    return command.txnid_most_bits, command.txnid_least_bits


def _answer(kind: "BaseCommand.Type", command: Any) -> tuple[BaseCommand, Any]:
    """The answer to a command of that kind, and the response in it, which the caller fills in."""
    answer_kind, field = _ANSWERS[kind]
    answer = BaseCommand(type=answer_kind)
    response = getattr(answer, field)
    response.request_id = command.request_id
    return answer, response


def _named_answer(kind: "BaseCommand.Type", command: Any) -> BaseCommand:
    """As `_answer`, with the transaction's id."""
    answer, response = _answer(kind, command)
    response.txnid_most_bits, response.txnid_least_bits = _id(command)
    return answer


def _refusal(kind: "BaseCommand.Type") -> Refusal:
    def refuse(command: Any, error: Exception) -> BaseCommand:
        answer, response = _answer(kind, command)
        response.error = server_error(error)
        response.message = str(error)
        return answer

    return refuse


def _command(kind: "BaseCommand.Type", handle: Any, right: str = "") -> Command:
    return Command(kind, handle, _refusal(kind), right)


COMMANDS = (
    _command(BaseCommand.TC_CLIENT_CONNECT_REQUEST, tc_client_connect),
    _command(BaseCommand.NEW_TXN, new_txn),
    _command(BaseCommand.ADD_PARTITION_TO_TXN, add_partition_to_txn, "Produce"),
    _command(BaseCommand.ADD_SUBSCRIPTION_TO_TXN, add_subscription_to_txn, "Consume"),
    _command(BaseCommand.END_TXN, end_txn),
    _command(BaseCommand.END_TXN_ON_PARTITION, _between_brokers),
    _command(BaseCommand.END_TXN_ON_SUBSCRIPTION, _between_brokers),
    Command(BaseCommand.WATCH_TC_ASSIGNMENTS, watch_tc_assignments, _refuse_watch),
    Command(BaseCommand.WATCH_TC_ASSIGNMENTS_CLOSE, stop_watching_tc),
)
