"""Errors for Spark users: one sentence each, which names the option or the topic and the next step.

Spark shows an exception of a Python data source with its class and text, so the text is the message.
"""

from magnetar.base.errors import MagnetarError


class SourceError(MagnetarError):
    """Reading cannot continue."""


class TopicError(SourceError):
    """A topic, or a partition of one, does not exist."""


class DataLost(SourceError):
    """Records that the query wants have been deleted, and `failOnDataLoss` is true."""
