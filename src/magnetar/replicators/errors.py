"""The errors of replicators."""

from collections.abc import Sequence
from typing import Any

from magnetar.base.errors import ConfigError, MagnetarError


class ReplicatorConfigError(ConfigError):
    """The configuration of a replicator cannot be used, now or later: one sentence with the next step."""


class CredentialsRefused(MagnetarError):
    """The target refuses the writer's login or rights: it will refuse again until a user has changed something."""


class TargetUnavailable(MagnetarError):
    """The target does not take records now: trying again later may help."""


class PoisonRecords(MagnetarError):
    """The target never takes these records, and has all others of the chunk; each comes with the reason.

    They are `ReplicatedRecord`s, of the port that raises this and knows these errors.
    """

    def __init__(self, records: Sequence[tuple[Any, str]]) -> None:
        super().__init__(
            f"the target does not take {len(records)} records, the first one because {records[0][1]}"
        )
        self.records = records
