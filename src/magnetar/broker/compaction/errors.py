"""The errors of compaction."""

from typing import ClassVar

from magnetar.base.errors import BrokerError


class CompactionRunning(BrokerError):
    """A run is already under way for this partition."""

    code: ClassVar[str] = "COMPACTION_RUNNING"
