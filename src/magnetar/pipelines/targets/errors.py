"""Errors that end a table's pipeline: one sentence for the user each, which names the column, file or topic."""

from magnetar.base.errors import MagnetarError


class TableError(MagnetarError):
    """The table cannot be written."""


class SchemaConflict(TableError):
    """Columns of the topic do not fit those that the table has."""


class TableDamaged(TableError):
    """Files that must exist do not."""
