"""Errors that end a table's pipeline, besides those of its table."""

from magnetar.pipelines.targets.errors import TableError


class Undecodable(TableError):
    """A value cannot be read, and the configuration says that this ends the pipeline."""
