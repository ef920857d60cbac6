"""Errors that end a table's pipeline, in addition to those of its table."""

from magnetar.pipelines.targets.errors import TableError


class Undecodable(TableError):
    """A value cannot be read, and the configuration ends the pipeline in that case."""
