"""Pulsar's transactions, as administrators see them (`/admin/v3/transactions`).

The keys are Pulsar's; topics have their full names.  Keys about Pulsar's logs and snapshots of transactions are left
out, because here transactions are metadata.
"""

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from magnetar.admin.answers import done, flag, value
from magnetar.admin.context import caller_of, cases_of, context_of
from magnetar.admin.routing import Router
from magnetar.base.names import PERSISTENT
from magnetar.broker.security.model import ANONYMOUS
from magnetar.broker.usecases.pulsar_transactions_admin import (
    CoordinatorStatistics,
    Position,
    PulsarTransactionAdminCases,
    TransactionInTopic,
    TransactionStatistics,
)

router: Final = Router()
_R: Final = "/admin/v3/transactions"
_T: Final = "{tenant}/{namespace}/{topic}"
_ID: Final = "{coordinator}/{transaction}"
_READY: Final = "Ready"
_NOT_READY: Final = "Initializing"  # the outcome of its transactions is not known yet


def _cases(request: Request) -> PulsarTransactionAdminCases:
    return cases_of(request).pulsar_transactions_admin


@router.get(f"{_R}/coordinators", summary="The transaction coordinators: one")
async def coordinators(request: Request) -> Response:
    url = context_of(request).service_url(request)
    numbers = _cases(request).coordinators(caller_of(request))
    return value([{"id": one, "brokerServiceUrl": url} for one in numbers])


@router.get(
    f"{_R}/coordinatorStats", summary="How many transactions are open, by coordinator or of ?coordinatorId"
)
async def coordinator_stats(request: Request, coordinatorId: int | None = None) -> Response:
    cases, caller = _cases(request), caller_of(request)
    if coordinatorId is not None:
        return value(_coordinator(cases.coordinator(caller, coordinatorId)))
    return value(
        {str(one): _coordinator(cases.coordinator(caller, one)) for one in cases.coordinators(caller)}
    )


@router.get(
    f"{_R}/transactionMetadata/{_ID}", summary="A transaction that has not ended, and what it has done"
)
async def metadata(request: Request, coordinator: int, transaction: int) -> Response:
    return value(
        _transaction(await _cases(request).transaction(caller_of(request), coordinator, transaction))
    )


@router.get(
    f"{_R}/slowTransactions/{{timeout_ms}}",
    summary="The transactions that have more time than this number of milliseconds",
)
async def slow(request: Request, timeout_ms: int, coordinatorId: int | None = None) -> Response:
    found = await _cases(request).slow(caller_of(request), timeout_ms, coordinatorId)
    return value({one.id_text: _transaction(one) for one in found})


@router.post(f"{_R}/abortTransaction/{_ID}", summary="Abort a transaction, whichever client has begun it")
async def abort(request: Request, coordinator: int, transaction: int) -> Response:
    await _cases(request).abort(caller_of(request), coordinator, transaction)
    return done()


@router.get(
    f"{_R}/transactionBufferStats/{_T}",
    summary="A topic's open and aborted transactions, of both protocols; ?lowWaterMarks=true with the coordinator's",
)
async def of_topic(request: Request, tenant: str, namespace: str, topic: str) -> Response:
    found = await _cases(request).of_topic(caller_of(request), _name(tenant, namespace, topic))
    return value(
        {
            "state": _READY if found.is_known else _NOT_READY,
            "maxReadPosition": _text(found.max_read),
            "ongoingTxnSize": found.open_count,
            "totalAbortedTransactions": found.aborted_count,
            **_low_water_marks(request, found.low_water_marks),
        }
    )


@router.get(
    f"{_R}/transactionInBufferStats/{_T}/{_ID}",
    summary="Where a transaction begins in a topic; whether it was aborted",
)
async def in_topic(
    request: Request, tenant: str, namespace: str, topic: str, coordinator: int, transaction: int
) -> Response:
    name = _name(tenant, namespace, topic)
    return value(
        _in_topic(await _cases(request).in_topic(caller_of(request), name, coordinator, transaction))
    )


@router.get(
    f"{_R}/pendingAckStats/{_T}/{{name:path}}",
    summary="How many open transactions have acknowledged in a subscription",
)
async def of_subscription(request: Request, tenant: str, namespace: str, topic: str, name: str) -> Response:
    found = _cases(request).of_subscription(caller_of(request), _name(tenant, namespace, topic), name)
    marks = _low_water_marks(request, found.low_water_marks)
    return value({"state": _READY, "ongoingTxnSize": found.open_count, **marks})


@router.get(
    f"{_R}/transactionInPendingAckStats/{_T}/{{name:path}}/{_ID}",
    summary="Up to where a transaction has acknowledged all of a subscription's messages, from the first one on",
)
async def in_subscription(
    request: Request, tenant: str, namespace: str, topic: str, name: str, coordinator: int, transaction: int
) -> Response:
    full = _name(tenant, namespace, topic)
    return value(
        _in_subscription(
            await _cases(request).in_subscription(caller_of(request), full, name, coordinator, transaction)
        )
    )


@router.get(
    f"{_R}/positionStatsInPendingAck/{_T}/{{name:path}}/{{ledger_id}}/{{entry_id}}",
    summary="Whether a message is acknowledged in an open transaction",
)
async def position(
    request: Request,
    tenant: str,
    namespace: str,
    topic: str,
    name: str,
    ledger_id: int,
    entry_id: int,
    batchIndex: int | None = None,
) -> Response:
    full = _name(tenant, namespace, topic)
    where = ledger_id, entry_id
    found = await _cases(request).pending(caller_of(request), full, name, where, batchIndex)
    return value({"state": found.value})


# --- documents --------------------------------------------------------------------------------------


def _coordinator(found: CoordinatorStatistics) -> dict[str, Any]:
    begin_ms, end_ms = found.recovered_ms
    return {
        "state": _READY,
        "leastSigBits": found.last_id,
        "lowWaterMark": found.low_water_mark,
        "ongoingTxnSize": found.open_count,
        "recoverStartTime": begin_ms,
        "recoverEndTime": end_ms,
    }


def _transaction(found: TransactionStatistics) -> dict[str, Any]:
    return {
        "txnId": found.id_text,
        "status": found.status,
        "openTimestamp": found.began_ms,
        "timeoutAt": found.timeout_ms,  # Pulsar's key for the time-out, in ms
        "producedPartitions": {name: _in_topic(one) for name, one in found.produced.items()},
        "ackedPartitions": {
            topic: {name: _in_subscription(one) for name, one in names.items()}
            for topic, names in found.acknowledged.items()
        },
        **({} if found.owner == str(ANONYMOUS) else {"owner": found.owner.partition(":")[2]}),
    }


def _in_topic(found: TransactionInTopic) -> dict[str, Any]:
    start = {} if found.start is None else {"startPosition": _text(found.start)}
    return {**start, "aborted": found.is_aborted}


def _in_subscription(position: Position | None) -> dict[str, Any]:
    return {} if position is None else {"cumulativeAckPosition": _text(position)}


def _low_water_marks(request: Request, marks: Mapping[int, int]) -> dict[str, Any]:
    if not flag(request, "lowWaterMarks"):
        return {}
    return {"lowWaterMarks": {str(coordinator): mark for coordinator, mark in marks.items()}}


def _text(position: Position) -> str:
    return f"{position[0]}:{position[1]}"


def _name(tenant: str, namespace: str, topic: str) -> str:
    return f"{PERSISTENT}{tenant}/{namespace}/{topic}"
