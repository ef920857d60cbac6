"""The configuration of a pipeline of the kind `table`, checked.  The reference is docs/reference/tables.md."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from magnetar.base.errors import ConfigError
from magnetar.client.login import Server
from magnetar.pipelines.kinds.config_values import check_keys, options_at, text_at, trigger_at
from magnetar.pipelines.kinds.database_tables import database_values
from magnetar.pipelines.kinds.kind import NOT_DECLARED
from magnetar.pipelines.targets.delta import DeltaTarget
from magnetar.pipelines.targets.files import FilesTarget
from magnetar.pipelines.targets.folder import open_folder
from magnetar.pipelines.targets.formats import CSV, JSON, PARQUET
from magnetar.pipelines.targets.iceberg.target import IcebergTarget
from magnetar.pipelines.targets.layout import (
    METADATA,
    METADATA_DEFAULT,
    PARTITIONINGS,
    PREFIX_DEFAULT,
    Layout,
)
from magnetar.pipelines.targets.parts import FILE_BYTES_DEFAULT
from magnetar.pipelines.targets.target import Target

DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
JDBC: Final = "jdbc"
FORMATS: Final = (DELTA, ICEBERG, PARQUET, JSON, CSV, JDBC)
SCHEMAS: Final = ("auto", "raw")
FAIL: Final = "fail"
DROP: Final = "drop"
TRIGGER_DEFAULT: Final = "10 seconds"
RECORDS_DEFAULT: Final = 1_000_000
FILE_BYTES_MIN: Final = 1 << 20
_PREFIX: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_KEYS: Final = {
    "topics": True,
    "format": False,
    "schema": False,
    "metadata_columns": False,
    "metadata_prefix": False,
    "dead_letter": False,
    "trigger": False,
    "starting": False,
    "records_per_batch": False,
    "source": False,
}
_OF_FILES: Final = {
    "path": True,
    "storage_options": False,
    "partition_by": False,
    "file_bytes": False,
    "compact_every": False,
}
_OF_DATABASES: Final = {"database": True, "table": True, "user": False, "password": False}
_RESERVED: Final = {
    "checkpointlocation": "the worker keeps the checkpoint",
    "predefinedsubscription": "the worker keeps the pipeline's place in a subscription of its own",
    "descriptors": "a table reads in its own way",
    "subscribe": "name topics in topics",
    "subscribepattern": "name topics in topics",
    "assign": "name topics in topics",
    "startingoffsets": "use starting",
    "maxoffsetspertrigger": "use records_per_batch",
    **NOT_DECLARED,
}


def checked(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with its defaults; a configuration that was checked before does not change.

    Raises ConfigError: one sentence that names the key.
    """
    form = _one_of(config, "format", FORMATS)
    check_keys(config, _KEYS | (_OF_DATABASES if form == JDBC else _OF_FILES))
    made = {
        "topics": _texts(config, "topics"),
        "format": form,
        "schema": _one_of(config, "schema", SCHEMAS),
        "metadata_columns": _metadata(config),
        "metadata_prefix": _prefix(config),
        "dead_letter": text_at(config, "dead_letter") if config.get("dead_letter") is not None else None,
        "trigger": trigger_at({"trigger": TRIGGER_DEFAULT, **config}),
        "starting": _starting(config.get("starting", "earliest")),
        "records_per_batch": _number(config, "records_per_batch", RECORDS_DEFAULT, least=1),
        "source": options_at({"source": {}, **config}, "source", _RESERVED),
    }
    return {**made, **(database_values(config) if form == JDBC else _in_files(config, form))}


def _in_files(config: Mapping[str, Any], form: str) -> dict[str, Any]:
    made: dict[str, Any] = {
        "path": text_at(config, "path"),
        "storage_options": _storage_options(config),
        "partition_by": _one_of(
            config, "partition_by", ("day", *(one for one in PARTITIONINGS if one != "day"))
        ),
        "file_bytes": _number(config, "file_bytes", FILE_BYTES_DEFAULT, least=FILE_BYTES_MIN),
        "compact_every": _number(config, "compact_every", 0, least=0),
    }
    if made["compact_every"] and form != DELTA:
        raise ConfigError(f"compact_every is for the format {DELTA}: in other formats files stay as they are")
    open_folder(made["path"], made["storage_options"])  # raises if one of them cannot be
    return made


def _texts(config: Mapping[str, Any], key: str) -> list[str]:
    value = config.get(key)
    names = [value] if isinstance(value, str) else value
    if (
        not isinstance(names, list)
        or not names
        or not all(isinstance(one, str) and one.strip() for one in names)
    ):
        raise ConfigError(f"{key} must be a topic's name or a list of them")
    for name in names:
        if "," in name:
            raise ConfigError(f"{key} must be a list of names, not {name[:100]!r} with commas")
    return list(dict.fromkeys(name.strip() for name in names))


def _one_of(config: Mapping[str, Any], key: str, allowed: tuple[str, ...]) -> str:
    """The value of `key`, one of `allowed`, of which the first is the default.  Raises ConfigError."""
    value = text_at(config, key, allowed[0])
    if value not in allowed:
        raise ConfigError(f"{key} must be one of {', '.join(allowed)}, not {value[:100]!r}")
    return value


def _storage_options(config: Mapping[str, Any]) -> dict[str, str]:
    options = options_at({"storage_options": {}, **config}, "storage_options", {})
    for name in options:
        # The store would use it instead of the URL, which is what was checked.
        if "bucket" in name.lower() or name.lower().endswith(("container", "container_name")):
            raise ConfigError(f"the option {name} of storage_options cannot be given: path names it")
        if _reaches_out(name):
            raise ConfigError(
                f"the option {name} of storage_options cannot be given, as it makes the worker read a file or run a"
                " program: set it in the worker's environment"
            )
    return options


def _reaches_out(name: str) -> bool:
    """Whether an option names a file that the store's client reads, or a program that it runs.

    The client sends its content to a server that another option names, so a user could read any file of the worker's
    account.
    """
    return name.lower().endswith(
        ("_file", "_path", "application_credentials", "service_account", "use_azure_cli")
    )


def _metadata(config: Mapping[str, Any]) -> list[str]:
    value = config.get("metadata_columns", list(METADATA_DEFAULT))
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ConfigError("metadata_columns must be a list of names")
    for name in value:
        if name not in METADATA:
            raise ConfigError(f"metadata_columns has {name[:100]!r}: there are {', '.join(METADATA)}")
    return list(dict.fromkeys(value))


def _prefix(config: Mapping[str, Any]) -> str:
    value = config.get("metadata_prefix", PREFIX_DEFAULT)
    if not isinstance(value, str) or (value and not _PREFIX.fullmatch(value)):
        raise ConfigError("metadata_prefix must be letters, digits and underscores, or an empty text")
    return value


def _starting(value: Any) -> str:
    if value in ("earliest", "latest"):
        return str(value)
    if isinstance(value, Mapping):
        return json.dumps(value)  # the source reports an error in it
    if isinstance(value, str) and value.startswith("{"):
        return value
    raise ConfigError('starting must be earliest, latest, or offsets such as {"topic": {"0": 12}}')


def _number(config: Mapping[str, Any], key: str, default: int, *, least: int) -> int:
    value = config.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{key} must be a number of at least {least}")
    return value


@dataclass(frozen=True, slots=True)
class TableConfig:
    """What every process of a pipeline needs; `values` is the result of `checked`.

    name       of the pipeline
    admin_url  of the server, which has the schemas
    bootstrap  of the server, for writing dead letters
    context    with which to log in there; empty if the server requires no login
    subscription  of the pipeline, with which names of transactions begin
    """

    name: str
    values: Mapping[str, Any]
    admin_url: str = ""
    bootstrap: str = ""
    context: str = ""
    subscription: str = ""

    @property
    def server(self) -> Server:
        return Server(self.admin_url, self.context)

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "values": dict(self.values)})

    @classmethod
    def of_json(cls, text: str) -> Self:
        found = json.loads(text)
        return cls(**found)

    @property
    def layout(self) -> Layout:
        values = self.values
        partition_by = values.get("partition_by", "none")
        return Layout(tuple(values["metadata_columns"]), values["metadata_prefix"], partition_by)

    @property
    def is_raw(self) -> bool:
        return bool(self.values["schema"] == "raw")

    @property
    def file_format(self) -> str:
        """What the table's files are written as; for a database, those in which its rows come."""
        form: str = self.values["format"]
        return form if form in (JSON, CSV) else PARQUET

    @property
    def file_bytes(self) -> int:
        return int(self.values.get("file_bytes", FILE_BYTES_DEFAULT))

    @property
    def has_dead_letters(self) -> bool:
        """Whether records that cannot be read go to a topic."""
        return self.values["dead_letter"] not in (FAIL, DROP)

    @property
    def fails(self) -> bool:
        """Whether a record that cannot be read ends the pipeline."""
        return bool(self.values["dead_letter"] == FAIL)

    def dead_letter_topic(self, topic: str) -> str:
        chosen = self.values["dead_letter"]
        return f"{topic}-{self.name}-DLQ" if chosen is None else str(chosen)

    def target(self) -> Target:
        """The table; for a database, the folder of files in which its rows come.

        Raises OptionError if no table can be at its path.
        """
        values = self.values
        folder = open_folder(values["path"], values.get("storage_options"))
        if values["format"] == ICEBERG:
            return IcebergTarget(folder, self.layout)
        if values["format"] != DELTA:
            return FilesTarget(folder)
        return DeltaTarget(
            folder,
            self.layout,
            values["storage_options"],
            file_bytes=self.file_bytes,
            compact_every=values["compact_every"],
        )
