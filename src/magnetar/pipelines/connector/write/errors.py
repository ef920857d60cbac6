"""Errors of writing, for Spark users: one sentence each, which names the option or the topic and the next step.

Spark shows an exception of a Python data source with its class and text, so the text is the message.
"""

from magnetar.base.errors import MagnetarError


class SinkError(MagnetarError):
    """Writing cannot continue."""


class RowError(SinkError):
    """A row cannot be written as it is."""


class BatchNotDecided(SinkError):
    """No part of a micro-batch has become visible; Spark writes it again when the query starts again."""


class RowsLost(SinkError):
    """A micro-batch was decided, but some of its transactions ended before they were committed."""
