"""What a transaction may do in each state: tables and plain functions, which do not write and do not wait.

The order of states is KIP-98's: Empty -> Ongoing -> PrepareCommit or PrepareAbort (the decision, which is final) ->
CompleteCommit or CompleteAbort (every marker is written) -> Ongoing again.  A producer has an id and an epoch; each
new instance gets a higher epoch, and an instance with an older one is fenced.

A producer of version 2 transactions (KIP-890) gets a higher epoch after each of its transactions, so that a late
request for one cannot open or join the next.  It may abort without an open transaction, because requests that it has
sent may be under way.
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum, auto
from typing import Final

from magnetar.broker.transactions.errors import TransactionError
from magnetar.broker.transactions.model import (
    EPOCH_GIVEN_MAX,
    EPOCH_MAX,
    NO_EPOCH,
    Producer,
    TopicPartition,
    TransactionRecord,
    TransactionState,
)

_S: Final = TransactionState
_E: Final = TransactionError

MOVES: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.ONGOING, _S.COMPLETE_ABORT, _S.DEAD}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.COMPLETE_COMMIT}),
    _S.PREPARE_ABORT: frozenset({_S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: frozenset({_S.EMPTY, _S.ONGOING, _S.COMPLETE_ABORT, _S.DEAD}),
    _S.COMPLETE_ABORT: frozenset({_S.EMPTY, _S.ONGOING, _S.COMPLETE_ABORT, _S.DEAD}),
    _S.DEAD: frozenset({_S.EMPTY}),
}
COMPLETED: Final = {_S.PREPARE_COMMIT: _S.COMPLETE_COMMIT, _S.PREPARE_ABORT: _S.COMPLETE_ABORT}

# For adding partitions and groups: the first one begins the transaction.
ADD: Final[Mapping[TransactionState, TransactionError]] = {
    _S.EMPTY: _E.NONE,
    _S.ONGOING: _E.NONE,
    _S.PREPARE_COMMIT: _E.CONCURRENT_TRANSACTIONS,
    _S.PREPARE_ABORT: _E.CONCURRENT_TRANSACTIONS,
    _S.COMPLETE_COMMIT: _E.NONE,
    _S.COMPLETE_ABORT: _E.NONE,
    _S.DEAD: _E.INVALID_PRODUCER_ID_MAPPING,
}
COMMIT_OFFSETS: Final[Mapping[TransactionState, TransactionError]] = {
    _S.EMPTY: _E.TRANSACTION_ABORTABLE,
    _S.ONGOING: _E.NONE,
    _S.PREPARE_COMMIT: _E.CONCURRENT_TRANSACTIONS,
    _S.PREPARE_ABORT: _E.CONCURRENT_TRANSACTIONS,
    _S.COMPLETE_COMMIT: _E.TRANSACTION_ABORTABLE,
    _S.COMPLETE_ABORT: _E.TRANSACTION_ABORTABLE,
    _S.DEAD: _E.INVALID_PRODUCER_ID_MAPPING,
}
# (for a commit, for an abort).  A client may repeat the request for what was decided, if the first answer was lost.
END: Final[Mapping[TransactionState, tuple[TransactionError, TransactionError]]] = {
    _S.EMPTY: (_E.INVALID_TXN_STATE, _E.INVALID_TXN_STATE),
    _S.ONGOING: (_E.NONE, _E.NONE),
    _S.PREPARE_COMMIT: (_E.CONCURRENT_TRANSACTIONS, _E.INVALID_TXN_STATE),
    _S.PREPARE_ABORT: (_E.INVALID_TXN_STATE, _E.CONCURRENT_TRANSACTIONS),
    _S.COMPLETE_COMMIT: (_E.NONE, _E.INVALID_TXN_STATE),
    _S.COMPLETE_ABORT: (_E.INVALID_TXN_STATE, _E.NONE),
    _S.DEAD: (_E.INVALID_PRODUCER_ID_MAPPING, _E.INVALID_PRODUCER_ID_MAPPING),
}
# The same for version 2.  There the epoch shows a repeated request, because an end gives the producer a new epoch.
# NONE: the producer gets its next epoch.
END_AND_RENEW: Final[Mapping[TransactionState, tuple[TransactionError, TransactionError]]] = {
    _S.EMPTY: (_E.INVALID_TXN_STATE, _E.NONE),
    _S.ONGOING: (_E.NONE, _E.NONE),
    _S.PREPARE_COMMIT: (_E.CONCURRENT_TRANSACTIONS, _E.CONCURRENT_TRANSACTIONS),
    _S.PREPARE_ABORT: (_E.CONCURRENT_TRANSACTIONS, _E.CONCURRENT_TRANSACTIONS),
    _S.COMPLETE_COMMIT: (_E.INVALID_TXN_STATE, _E.NONE),
    _S.COMPLETE_ABORT: (_E.INVALID_TXN_STATE, _E.NONE),
    _S.DEAD: (_E.INVALID_PRODUCER_ID_MAPPING, _E.INVALID_PRODUCER_ID_MAPPING),
}
# Only in these states the epoch before the last bump may be the one with which a client requested the end.
_ENDED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})


class Initialise(Enum):
    """What InitProducerId has to do first."""

    RENEW = auto()
    ABORT_FIRST = auto()
    WAIT = auto()
    CREATE = auto()


INITIALISE: Final[Mapping[TransactionState, Initialise]] = {
    _S.EMPTY: Initialise.RENEW,
    _S.ONGOING: Initialise.ABORT_FIRST,
    _S.PREPARE_COMMIT: Initialise.WAIT,
    _S.PREPARE_ABORT: Initialise.WAIT,
    _S.COMPLETE_COMMIT: Initialise.RENEW,
    _S.COMPLETE_ABORT: Initialise.RENEW,
    _S.DEAD: Initialise.CREATE,
}


def check_producer(record: TransactionRecord | None, producer: Producer) -> TransactionError:
    """Check that `producer` is the present producer of the transactional id."""
    if record is None or record.owner.producer_id != producer.producer_id:
        return _E.INVALID_PRODUCER_ID_MAPPING
    return _E.NONE if record.owner.epoch == producer.epoch else _E.PRODUCER_FENCED


def verify(
    record: TransactionRecord | None, producer: Producer, partition: TopicPartition
) -> TransactionError:
    """Check that the producer may write to `partition` in its open transaction."""
    error = check_producer(record, producer)
    if record is None or error is not _E.NONE:
        return error
    if record.state in COMPLETED:
        return _E.CONCURRENT_TRANSACTIONS
    return _E.NONE if partition in record.partitions else _E.TRANSACTION_ABORTABLE


def may_continue(record: TransactionRecord, claimed: Producer) -> bool:
    """Whether a producer that asks for a new epoch (KIP-360) is the last one, or repeats its previous request."""
    # A producer that has opened a transaction under its new epoch has got that epoch, so this is a late request.
    repeats = is_repeated(record, claimed) and record.state is not _S.ONGOING
    return claimed == record.owner or repeats


def is_repeated(record: TransactionRecord, claimed: Producer | None) -> bool:
    """Whether this request was already answered with the record's present epoch, and the answer was lost."""
    return (
        claimed is not None
        and record.last_epoch != NO_EPOCH
        and claimed == (record.last_producer_id, record.last_epoch)
    )


def fenced(record: TransactionRecord, now_ms: int, claimed: Producer | None = None) -> TransactionRecord:
    """The decision to abort the open transaction, with a higher epoch, so that its producer cannot write any more."""
    return replace(
        record,
        epoch=min(record.epoch + 1, EPOCH_MAX),
        last_producer_id=-1 if claimed is None else record.producer_id,
        last_epoch=NO_EPOCH if claimed is None else record.epoch,
        state=_S.PREPARE_ABORT,
        updated_ms=now_ms,
    )


def _is_end_repeated(record: TransactionRecord, producer: Producer) -> bool:
    """Whether an end of version 2 is repeated because its answer, with the record's present epoch, was lost."""
    return record.state in _ENDED and is_repeated(record, producer)


def end(
    record: TransactionRecord | None, producer: Producer, *, commit: bool, renews: bool
) -> TransactionError:
    """Check that the producer may commit or abort, or has done so; `renews`: the request is of version 2."""
    if record is None:
        return _E.INVALID_PRODUCER_ID_MAPPING
    choice = 0 if commit else 1
    if renews and _is_end_repeated(record, producer):
        return END[record.state][choice]
    error = check_producer(record, producer)
    if error is not _E.NONE:
        return error
    return (END_AND_RENEW if renews else END)[record.state][choice]


def is_ended(record: TransactionRecord, producer: Producer, *, renews: bool) -> bool:
    """Whether the end that `end` allows was carried out before."""
    return _is_end_repeated(record, producer) if renews else record.state is not _S.ONGOING


def decided(
    record: TransactionRecord, now_ms: int, new_id: int | None, *, commit: bool, renews: bool
) -> TransactionRecord:
    """The decision to end the open transaction; a request of version 2 adds the next epoch, which the markers carry.

    If the epoch is exhausted, the producer continues with `new_id` afterwards.  Without an open transaction there are
    no markers, and only the epoch changes.
    """
    state = _S.PREPARE_COMMIT if commit else _S.PREPARE_ABORT
    if not renews:
        return replace(record, state=state, updated_ms=now_ms)
    ended = replace(
        record,
        epoch=min(record.epoch + 1, EPOCH_MAX),
        last_producer_id=record.producer_id,
        last_epoch=record.epoch,
        next_producer_id=-1 if new_id is None else new_id,
        state=state,
        updated_ms=now_ms,
    )
    return ended if record.state is _S.ONGOING else completed(ended, now_ms)


def completed(record: TransactionRecord, now_ms: int) -> TransactionRecord:
    """The record after every marker of a decided transaction is written."""
    producer_id, epoch = record.owner
    return replace(
        record,
        producer_id=producer_id,
        epoch=epoch,
        next_producer_id=-1,
        state=COMPLETED[record.state],
        partitions=frozenset(),
        offsets={},
        started_ms=-1,
        updated_ms=now_ms,
    )


def is_exhausted(record: TransactionRecord) -> bool:
    """Whether there is no higher epoch, so that the next producer needs a new id."""
    return record.epoch >= EPOCH_GIVEN_MAX


def renewed(
    record: TransactionRecord, new_id: int | None, timeout_ms: int, now_ms: int, claimed: Producer | None
) -> TransactionRecord:
    """The record for the next instance of the producer: with the next epoch, or epoch 0 of `new_id`, and no open
    transaction.
    """
    repeated = is_repeated(record, claimed)
    if repeated:
        producer_id, epoch = record.producer_id, record.epoch
        last = (record.last_producer_id, record.last_epoch)
    else:
        producer_id, epoch = (record.producer_id, record.epoch + 1) if new_id is None else (new_id, 0)
        last = (-1, NO_EPOCH) if claimed is None else (record.producer_id, record.epoch)
    return TransactionRecord(producer_id, epoch, timeout_ms, _S.EMPTY, now_ms, *last)
