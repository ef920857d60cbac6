"""Sends a chunk of records to a target until the target has it.

The caller sends the next chunk only after that.  So records of a partition arrive in order, and those that come again
come again in order, too.  Trouble that outlasts `PAUSES_S` is the caller's to wait out, because only the caller knows
what waits behind it.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from magnetar.replicators.errors import (
    CredentialsRefused,
    PoisonRecords,
    ReplicatorConfigError,
    TargetUnavailable,
)
from magnetar.replicators.provider import ReplicatedRecord, ReplicatorProducer

PAUSES_S: Final = (0.1, 0.2, 0.4, 0.8)


class Opener(Protocol):
    """Where the producer comes from.

    `get` opens one if there is none, and raises as `ReplicatorProvider.create_producer`; `drop` closes it.
    """

    def get(self) -> ReplicatorProducer: ...

    def drop(self) -> None: ...


def deliver(
    producers: Opener, chunk: Sequence[ReplicatedRecord], sleep: Callable[[float], None]
) -> Sequence[tuple[ReplicatedRecord, str]]:
    """Return when the target has the chunk: the records that it never takes, each with the reason, and has not.

    Raises:
        TargetUnavailable: the target did not take the chunk, in spite of all pauses.
        CredentialsRefused, ReplicatorConfigError: trying again does not help.
    """
    for pause_s in (*PAUSES_S, None):
        try:
            producer = producers.get()
            producer.send(chunk)
            producer.flush()
        except PoisonRecords as found:
            return found.records
        except TargetUnavailable:
            producers.drop()
            if pause_s is None:
                raise
            sleep(pause_s)
        except (CredentialsRefused, ReplicatorConfigError):
            producers.drop()
            raise
        else:
            return ()
    raise AssertionError("the last pause is None")
