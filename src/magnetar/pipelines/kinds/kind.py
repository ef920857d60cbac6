"""What a pipeline can be: its kind checks a configuration and makes a streaming query of it.

A kind is a class with no arguments; `KINDS` says where it is, and packages add theirs by the entry point group
`magnetar.pipelines`.  Nothing is imported before a pipeline of the kind is there, and checking needs no Spark.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from magnetar.base.config import closest
from magnetar.base.errors import ConfigError
from magnetar.base.table_roots import TableRoots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

GROUP: Final = "magnetar.pipelines"
KINDS: Final[Mapping[str, str]] = {
    "query": "magnetar.pipelines.kinds.query.kind:QueryKind",
    "table": "magnetar.pipelines.kinds.table.kind:TableKind",
}
TRIGGER: Final = "1 second"


@dataclass(frozen=True, slots=True)
class Spec:
    """A declared pipeline.  `config` is what `Kind.validate` returned when `Kind.start` sees it."""

    name: str
    id: str
    kind: str
    config: Mapping[str, Any]
    subscription: str


@dataclass(frozen=True, slots=True)
class Context:
    """What a kind needs to know of its surroundings.

    `admin_url` and `bootstrap_servers` are the server's HTTP and Kafka addresses, `folder` is this pipeline's own: the
    checkpoint is in it, and what else it keeps there is gone when the pipeline is deleted.  `table_roots` is where
    tables may lie; None, for a program that runs a kind by itself, is wherever it may write.
    """

    admin_url: str
    bootstrap_servers: str
    folder: Path
    table_roots: TableRoots | None = None

    def table_path(self, path: str) -> str:
        """Where a table that was declared at `path` lies; ConfigError when it may not lie there."""
        return path if self.table_roots is None else self.table_roots.resolve(path)

    def source_options(self, spec: Spec, given: Mapping[str, str]) -> dict[str, str]:
        """Options of `readStream.format("magnetar")`: those `given`, the server's address where they name none, from
        the beginning unless they say otherwise, and the subscription that keeps the pipeline's place in the topic.

        Another server is read over the network only: it says which files hold its records, and those would be files of
        this machine.
        """
        options = dict(given)
        names = {name.lower() for name in options}
        if not names & {"admin.url", "kafka.bootstrap.servers", "service.url"}:
            options["admin.url"] = self.admin_url
        elif self.table_roots is not None:
            options = {name: value for name, value in options.items() if name.lower() != "read.mode"}
            options["read.mode"] = "broker"
        if not any(name.startswith("starting") for name in names):
            options["startingOffsets"] = "earliest"
        options["predefinedSubscription"] = spec.subscription
        return options

    def sink_options(self, given: Mapping[str, str]) -> dict[str, str]:
        """Options of `writeStream.format("magnetar")`: those `given`, and the server's address where they name none."""
        options = dict(given)
        if "kafka.bootstrap.servers" not in {name.lower() for name in options}:
            options["kafka.bootstrap.servers"] = self.bootstrap_servers
        return options


class Kind(Protocol):
    name: str
    reads_slices: bool
    """Its source has `descriptors`: what Spark counts as rows are slices of many records each."""

    def validate(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """The configuration with its defaults, checked.

        Raises:
            ConfigError: one sentence that names the key and what to do.
        """
        ...

    def start(
        self, spark: "SparkSession", spec: Spec, checkpoint_dir: str, context: Context
    ) -> "StreamingQuery":
        """Start the query, named `spec.name`, with its checkpoint in `checkpoint_dir`; returns when it is started.

        `spark` is a session of this pipeline's own: no other pipeline sees its temporary views and settings.  Whatever
        is raised is shown as the reason of the failure; a ConfigError is not tried again.
        """
        ...


def find_kind(name: str) -> Kind:
    """The kind of that name; ConfigError when there is none, or when it cannot be imported."""
    places = {point.name: point.value for point in entry_points(group=GROUP)}
    place = KINDS.get(name) or places.get(name)
    if place is None:
        meant = closest(name, [*KINDS, *places])
        hint = f"did you mean {meant}?" if meant else f"there are {', '.join(sorted({*KINDS, *places}))}"
        raise ConfigError(f"there is no kind of pipeline {name[:100]!r}: {hint}")
    module, _, attribute = place.partition(":")
    try:
        kind: Kind = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"the kind {name} cannot be loaded: {error}") from error
    return kind


# --- for kinds: what their configurations have in common -----------------------------------------------------------


def check_keys(config: Mapping[str, Any], known: Mapping[str, bool], where: str = "config") -> None:
    """Hold the keys of `config` to `known`, {key: whether it must be there}; ConfigError."""
    for key in config:
        if key not in known:
            meant = closest(str(key), known)
            hint = f"did you mean {meant}?" if meant else f"there are {', '.join(sorted(known))}"
            raise ConfigError(f"{where} has no key {str(key)[:100]!r}: {hint}")
    for key, must in known.items():
        if must and key not in config:
            raise ConfigError(f"{where} needs the key {key}")


def text_at(config: Mapping[str, Any], key: str, default: str | None = None, where: str = "config") -> str:
    """A text that is not empty; ConfigError."""
    value = config.get(key, default)
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{key} of {where} must be a text")
    return value


def options_at(config: Mapping[str, Any], key: str, reserved: Mapping[str, str]) -> dict[str, str]:
    """Options of a reader or writer, as Spark takes them: names and texts; numbers and booleans are made text.

    `reserved` are names that cannot be given, {in small letters: why}.
    """
    given = config.get(key)
    if not isinstance(given, Mapping):
        raise ConfigError(f"{key} must be an object of options")
    options: dict[str, str] = {}
    for name, value in given.items():
        why = reserved.get(str(name).lower())
        if why is not None:
            raise ConfigError(f"the option {name} of {key} cannot be given: {why}")
        if isinstance(value, bool):
            options[name] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            options[name] = str(value)
        else:
            raise ConfigError(f"the option {name} of {key} must be a text, a number, true or false")
    return options


def trigger_at(config: Mapping[str, Any]) -> str:
    """`trigger`, how often a batch is made, as Spark writes intervals: `1 second` (the default), `10 minutes`."""
    value = text_at(config, "trigger", TRIGGER)
    number, _, unit = value.strip().partition(" ")
    units = {"millisecond", "second", "minute", "hour"}
    if not number.isdecimal() or unit.strip().lower().removesuffix("s") not in units:
        raise ConfigError(
            f"trigger must be an interval such as '{TRIGGER}' or '5 minutes', not {value[:100]!r}"
        )
    return value
