"""Writes records to a table of DynamoDB, within the limits of its requests.

**Order.**  A request cannot name an item twice.  If several records of a chunk have one key, the producer sends only
the last of them.  So it may write the items of a chunk in any order.  It writes one chunk after the other.

**Throttling.**  The producer sends again, after a pause, what DynamoDB left undone of a request; pauses grow while
nothing gets through.

**Poison.**  DynamoDB refuses a request as a whole.  The producer then sends its items one by one.  An item that
DynamoDB refuses alone is poison, unless the table was replaced since the producer was opened.  The producer
sends the previous record with that key instead.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from magnetar.replicators.aws.client import Patience, Rejected, Throttled, judging, open_client
from magnetar.replicators.aws.settings import AwsTarget
from magnetar.replicators.dynamodb.items import Layout, Mode, Unfit, Write
from magnetar.replicators.errors import PoisonRecords, TargetUnavailable
from magnetar.replicators.provider import ReplicatedRecord

ITEMS_MAX: Final = 25  # of a request, as the next one
REQUEST_BYTES_MAX: Final = 12 << 20  # 16 MB are allowed, and bytes travel in base64
_ACTIVE: Final = ("ACTIVE", "UPDATING")


class DynamoDbProducer:
    """See the module's text."""

    def __init__(
        self, target: AwsTarget, topic: str, mode: Mode, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Raises ReplicatorConfigError, TargetUnavailable, CredentialsRefused."""
        self._name = target.name
        self._what = f"table {target.name} of DynamoDB"
        self._sleep = sleep
        self._chunk: dict[tuple[tuple[str, Any], ...], list[Write]] = {}
        self._poison: list[tuple[ReplicatedRecord, str]] = []
        with judging(self._what):
            self._client: Any = open_client(target)
        try:
            self._description = self._described()
            self._layout = Layout(mode, topic, target.name, self._description)
        except BaseException:
            self.close()
            raise

    def send(self, records: Sequence[ReplicatedRecord]) -> None:
        for record in records:
            try:
                write = self._layout.write(record)
            except Unfit as error:
                self._poison.append((record, str(error)))
            else:
                self._chunk.setdefault(write.identity, []).append(write)

    def flush(self) -> None:
        patience = Patience(self._sleep)
        waiting = deque(writes[-1] for writes in self._chunk.values())
        while waiting:
            taken = _next_request(waiting)
            try:
                left, reason = self._put(taken)
            except Rejected as error:
                if len(taken) > 1:
                    left, reason = self._one_by_one(taken, waiting)
                else:
                    left, reason = [], None
                    self._refused(taken[0], error, waiting)
            waiting.extendleft(reversed(left))
            patience.after(reason, got_through=len(left) < len(taken))
        self._chunk = {}
        poison, self._poison = self._poison, []
        if poison:
            raise PoisonRecords(poison)

    def close(self) -> None:
        self._client.close()

    # --- inside

    def _described(self) -> dict[str, Any]:
        """The table's key.  Raises TargetUnavailable, CredentialsRefused."""
        with judging(self._what):
            found = self._client.describe_table(TableName=self._name)["Table"]
        if found["TableStatus"] not in _ACTIVE:
            raise TargetUnavailable(f"{self._what} is {found['TableStatus']}")
        return {name: found[name] for name in ("KeySchema", "AttributeDefinitions")}

    def _put(self, writes: Sequence[Write]) -> tuple[list[Write], str | None]:
        """The writes that DynamoDB left undone, and why.  Raises Rejected, TargetUnavailable, CredentialsRefused."""
        try:
            with judging(self._what):
                answer = self._client.batch_write_item(
                    RequestItems={self._name: [write.request for write in writes]}
                )
        except Throttled as error:
            return list(writes), str(error)
        undone = {self._layout.identity_of(one) for one in answer["UnprocessedItems"].get(self._name, ())}
        left = [write for write in writes if write.identity in undone]
        return left, f"{self._what} is too slow: {len(left)} items are left undone" if left else None

    def _one_by_one(self, writes: Sequence[Write], waiting: deque[Write]) -> tuple[list[Write], str | None]:
        left: list[Write] = []
        reason = None
        for write in writes:
            try:
                undone, why = self._put([write])
            except Rejected as error:
                self._refused(write, error, waiting)
            else:
                left += undone
                reason = why or reason
        return left, reason

    def _refused(self, write: Write, error: Rejected, waiting: deque[Write]) -> None:
        """DynamoDB never takes this record."""
        if self._described() != self._description:
            raise TargetUnavailable(f"{self._what} has another key than before") from None
        self._poison.append((write.record, str(error)))
        before = self._chunk[write.identity]
        before.pop()
        if before:
            waiting.append(before[-1])


def _next_request(waiting: deque[Write]) -> list[Write]:
    taken: list[Write] = []
    size = 0
    while waiting and len(taken) < ITEMS_MAX and (not taken or size + waiting[0].size <= REQUEST_BYTES_MAX):
        taken.append(waiting.popleft())
        size += taken[-1].size
    return taken
