"""The producers of this process: opened once, and used by every task that runs in it.

Spark's Python workers live from task to task; a login at a target for each micro-batch would take longer than most
batches.  A task closes a producer that has failed, and the next use opens a new one.
"""

import json
import os
from typing import Final

from magnetar.pipelines.kinds.replicator.config import ReplicatorConfig
from magnetar.replicators.provider import ReplicatorProducer
from magnetar.replicators.registry import find_provider

KEPT_MAX: Final = 4  # each has threads and buffers of its own

_kept: dict[tuple[int, str], ReplicatorProducer] = {}


class Producers:
    """The producer of one replicator in this process."""

    def __init__(self, config: ReplicatorConfig) -> None:
        self._config = config
        self._key = (os.getpid(), json.dumps([config.id, dict(config.values)], sort_keys=True))

    def get(self) -> ReplicatorProducer:
        """Raises ReplicatorConfigError, TargetUnavailable, CredentialsRefused."""
        found = _kept.pop(self._key, None)
        if found is None:
            values = self._config.values
            found = find_provider(values["type"]).create_producer(values["topic"], self._config.policies)
            while len(_kept) >= KEPT_MAX:
                _kept.pop(next(iter(_kept))).close()  # the one that no task has used for the longest time
        _kept[self._key] = found
        return found

    def drop(self) -> None:
        """The producer has failed: close it."""
        found = _kept.pop(self._key, None)
        if found is not None:
            found.close()
