"""What a start finds besides topics: deletions to finish, and data that belongs to no topic.

A start finishes interrupted deletions (`deleted.py`), and keeps everything that no deletion gave up: logs that belong
to no topic, ledgers that belong to no log.  It names such data in the log and in `problem`.  Only ledgers without a
single entry, which a crash leaves between the creation of a ledger and its place in a chain, are given up then.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.base.listed import listed
from magnetar.broker.topics.deleted import DeletedTopics
from magnetar.broker.topics.roots import EPOCHS_ROOT, SNAPSHOTS_ROOT
from magnetar.broker.topics.topic import Topic
from magnetar.ledger.environment import LedgerEnvironment
from magnetar.ledger.managed_ledger import LedgerLimits, ManagedLedger
from magnetar.metadata.store import Versioned
from magnetar.storage.store import LedgerId

_log = logging.getLogger(__name__)

_LISTED_MAX: Final = 16


class Leftovers:
    """See the module's text."""

    def __init__(self, environment: LedgerEnvironment, deleted: DeletedTopics) -> None:
        self._environment = environment
        self._deleted = deleted
        self.problem: str | None = None  # what is kept although it belongs to no topic

    async def settle(
        self, topics: Iterable[Topic], unopened: dict[str, Versioned], cursors: Mapping[str, Sequence[str]]
    ) -> None:
        """Finish deletions that had begun, and report what no topic owns and no deletion gave up.

        `unopened` has what is stored of the logs that no topic has opened, by name; those of no topic leave it.
        `cursors` are the paths of cursors that belong to no topic, by topic id in hex.
        """
        environment = self._environment
        stats = environment.stats
        await self._deleted.load()
        deleted = {topic_id.hex(): topic_id for topic_id in self._deleted.ids()}
        to_erase: dict[bytes, list[ManagedLedger]] = {topic_id: [] for topic_id in deleted.values()}
        owned = {ledger_id for topic in topics for log in topic.logs for ledger_id in log.stored_ids}
        strays = []  # logs of no topic
        names = set(unopened)
        for root in (SNAPSHOTS_ROOT, EPOCHS_ROOT):
            names.update(path[len(root) :] for path, _ in await environment.metadata.scan(root))
        for name in sorted(names):
            topic_id = deleted.get(name.rpartition("@")[2])
            stored = unopened.pop(name, None)
            if stored is None and topic_id is None:
                continue
            log = ManagedLedger(name, environment, LedgerLimits())
            if stored is not None:
                log.restore(stored.value, stored.version, stats)
            if topic_id is None:
                strays.append(name)
                owned.update(log.stored_ids)
            else:
                to_erase[topic_id].append(log)
        named = await environment.tombstones.load()
        given_up = {ledger_id for ledger_id in named if ledger_id not in owned}
        given_up_logs = {
            ledger_id for logs in to_erase.values() for log in logs for ledger_id in log.stored_ids
        }
        unowned = [one for one in stats if one not in owned and one not in given_up | given_up_logs]
        empty = [one for one in unowned if not stats[one].entry_count]
        self._report(strays, [one for one in unowned if stats[one].entry_count])
        if len(given_up) < len(named):
            _log.error("the server keeps deleted ledgers, because logs still name them: %s", len(named))
        environment.tombstones.carry_out(given_up)
        for topic_id, logs in to_erase.items():
            self._deleted.erase(topic_id, logs, cursors.get(topic_id.hex(), ()))
        if empty:
            environment.tasks.spawn("give empty ledgers up", self._give_up(empty))

    async def _give_up(self, empty: Sequence[LedgerId]) -> None:
        try:
            await self._environment.tombstones.give_up(empty)
        except BrokerError as error:
            _log.warning("the server keeps %d ledgers without entries for now: %s", len(empty), error)

    def _report(self, strays: Sequence[str], unowned: Sequence[LedgerId]) -> None:
        """Report once what is kept although no client can read it."""
        kept = []
        if unowned:
            size_bytes = sum(self._environment.stats[one].size_bytes for one in unowned)
            named = listed(unowned, _LISTED_MAX)
            kept.append(f"{len(unowned)} ledgers ({size_bytes} bytes) belong to no topic: {named}")
        if strays:
            kept.append(f"{len(strays)} logs belong to no topic: {listed(strays, _LISTED_MAX)}")
        if kept:
            self.problem = (
                f"{'; '.join(kept)}; they are kept, as no deletion covers them: see `magnetar doctor`"
            )
            _log.warning(self.problem)
