"""The logs of partitions: opened with what a start has read, or, in a cluster, by the owner of the bundle."""

from collections.abc import Callable
from functools import partial

from magnetar.base import randomness
from magnetar.broker.cluster.ownership.owner import Hold
from magnetar.broker.log.partition import OpenLog
from magnetar.broker.policy.model import TopicConfig
from magnetar.ledger.chain_rows import METADATA_ROOT
from magnetar.ledger.environment import LedgerEnvironment
from magnetar.ledger.managed_ledger import LedgerLimits, ManagedLedger
from magnetar.ledger.stored_log import StoredLog, recover_log
from magnetar.metadata.store import Versioned


class Logs:
    """See the module's text.  Both ways to open one are for the partition that calls what they return."""

    def __init__(self, environment: LedgerEnvironment) -> None:
        self._environment = environment
        self.unopened: dict[str, Versioned] = {}  # metadata of logs that are not open yet, by log name

    async def load(self) -> None:
        """Read what is stored of every log."""
        prefix = len(METADATA_ROOT)
        scanned = await self._environment.metadata.scan(METADATA_ROOT)
        self.unopened = {path[prefix:]: value for path, value in scanned}

    def loaded(self, name: str, config: TopicConfig) -> OpenLog:
        """A log as the start has read it, or a new one."""
        return partial(self._open_loaded, name, limits_of(config))

    def _open_loaded(
        self, name: str, limits: LedgerLimits, *, on_advance: Callable[[], None], on_reset: Callable[[], None]
    ) -> ManagedLedger:
        log = ManagedLedger(name, self._environment, limits, on_advance=on_advance, on_reset=on_reset)
        stored = self.unopened.pop(name, None)
        if stored is not None:
            log.restore(stored.value, stored.version, self._environment.stats)
        return log

    # --- in a cluster ------------------------------------------------------------------------------------------------

    async def recover(self, name: str) -> StoredLog | None:
        """As `recover_log`."""
        return await recover_log(self._environment, name)

    def owned(self, name: str, config: TopicConfig, hold: Hold, stored: StoredLog | None) -> OpenLog:
        """A log for the owner of its bundle, as it was recovered, or a new one.  To open it raises LogLost if a later
        owner has written it.
        """
        return partial(self._open_owned, name, limits_of(config), hold, stored)

    def _open_owned(
        self,
        name: str,
        limits: LedgerLimits,
        hold: Hold,
        stored: StoredLog | None,
        *,
        on_advance: Callable[[], None],
        on_reset: Callable[[], None],
    ) -> ManagedLedger:
        log = ManagedLedger(
            name, self._environment, limits, owned=hold.checks, on_advance=on_advance, on_reset=on_reset
        )
        log.take_over(stored, hold.generation)
        return log


def limits_of(config: TopicConfig) -> LedgerLimits:
    """The limits of one log: by segment.jitter.ms, the logs of a topic begin new ledgers at different times."""
    age_ms_max = config.segment_ms
    if config.segment_jitter_ms:
        age_ms_max -= randomness.between(0, min(config.segment_jitter_ms, config.segment_ms) - 1)
    return LedgerLimits(size_bytes_max=config.segment_bytes, age_ms_max=age_ms_max)
