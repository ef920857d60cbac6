"""The port of a kind of pipelines: it checks a configuration and makes a streaming query of it.

A kind is a class without arguments.  `registry.py` finds it, and `config_values.py` has what configurations have in
common.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from magnetar.base.errors import ConfigError, MagnetarError
from magnetar.base.table_roots import TableRoots
from magnetar.client.login import Server
from magnetar.pipelines.connector import options as connector
from magnetar.pipelines.spark.databases import Database, Databases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What an option that a pipeline declares may not name: files of the worker's account, and what they let it do.
NOT_DECLARED: Final = {
    connector.CONTEXT: "a pipeline logs in at its server as its owner; another one is read without",
    "replicatorrate": "only replicators have the rate of replicators",
    connector.NAME_PREFIX.lower(): "transactions of a pipeline are called after it",
}


class NotYet(MagnetarError):
    """A pipeline cannot start before something outside is there.  The text is one sentence; the worker tries again."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A declared pipeline.  For `Kind.start`, `config` is what `Kind.validate` returned."""

    name: str
    id: str
    kind: str
    config: Mapping[str, Any]
    subscription: str


@dataclass(frozen=True, slots=True)
class Context:
    """What a kind needs to know of its surroundings.

    `admin_url` and `bootstrap_servers` are the server's HTTP and Kafka addresses.  `folder` is this pipeline's own:
    it contains the checkpoint, and is removed when the pipeline is deleted.  `table_roots` is where tables may be;
    None, for a program that runs a kind by itself, is wherever it may write.  `server_context` is how to log in at
    the server as the pipeline's owner, empty if the server requires no login; it is never shown to another server.
    In the file `private`, which only this account can read, a kind leaves secrets for its processes.  The worker keeps
    the file where the token is, and deletes it when the query has ended.  `databases` are those that pipelines may use.
    """

    admin_url: str
    bootstrap_servers: str
    folder: Path
    table_roots: TableRoots | None = None
    server_context: str = ""
    private: Path | None = None
    databases: Databases | None = None

    def database(self, name: str) -> Database:
        """Raises ConfigError: pipelines may not use it."""
        if self.databases is None:
            raise ConfigError("this program has no folder that says which databases there are")
        return self.databases.find(name)

    @property
    def private_file(self) -> Path:
        """`private`; a program that runs a kind by itself has it beside the checkpoint."""
        return self.folder / "private" if self.private is None else self.private

    def table_path(self, path: str) -> str:
        """Where a table that was declared at `path` is; raises ConfigError if it may not be there."""
        return path if self.table_roots is None else self.table_roots.resolve(path)

    def source_options(self, spec: Spec, given: Mapping[str, str]) -> dict[str, str]:
        """Options of `readStream.format("magnetar")`: the `given` ones, and the subscription that keeps the pipeline's
        position in the topic.  If the given options name neither an address nor a start, there is also the server's
        address, and a start at the beginning.

        Another server is read over the network only: it would name the files that hold its records, and those would
        be files of this machine.
        """
        options = dict(given)
        names = {name.lower() for name in options}
        if not names & {"admin.url", "kafka.bootstrap.servers", "service.url"}:
            options |= self.server_options
        elif self.table_roots is not None:
            options = {name: value for name, value in options.items() if name.lower() != "read.mode"}
            options["read.mode"] = "broker"
        if not any(name.startswith("starting") for name in names):
            options["startingOffsets"] = "earliest"
        options["predefinedSubscription"] = spec.subscription
        return options

    def sink_options(self, spec: Spec, given: Mapping[str, str]) -> dict[str, str]:
        """Options of `writeStream.format("magnetar")`: those `given`, with the server's address unless they name one,
        and the names of the pipeline's transactions.
        """
        options = {**given, **name_options(spec.subscription)}
        if "kafka.bootstrap.servers" not in {name.lower() for name in options}:
            options |= self.bootstrap_options
        return options

    @property
    def server_options(self) -> dict[str, str]:
        """The source's options with which it reaches the server."""
        return connector.source_options(Server(self.admin_url, self.server_context))

    @property
    def bootstrap_options(self) -> dict[str, str]:
        """The sink's options with which it reaches the server."""
        return connector.sink_options(self.bootstrap_servers, self.server_context)


def name_options(subscription: str) -> dict[str, str]:
    """The sink's options that name its transactions after the pipeline with this subscription.  So the server
    recognises them as the pipeline's own, and its owner needs no right to them.
    """
    return {connector.NAME_PREFIX: f"{subscription}:"}


class Query(Protocol):
    """What the worker needs of a query that a kind has started: a part of Spark's `StreamingQuery`."""

    @property
    def isActive(self) -> bool: ...

    def exception(self) -> Exception | None: ...

    def stop(self) -> None: ...


class Kind(Protocol):
    name: str
    reads_slices: bool
    """Its source has `descriptors`: what Spark counts as rows are slices of many records each."""

    def validate(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Check the configuration; returns it with its defaults.

        Raises:
            ConfigError: one sentence that names the key and what to do.
        """
        ...

    def start(self, spark: "SparkSession", spec: Spec, checkpoint_dir: str, context: Context) -> Query:
        """Start the query, named `spec.name`, with its checkpoint in `checkpoint_dir`; returns when it has started.

        `spark` is a session of this pipeline's own: no other pipeline sees its temporary views and settings.  An
        exception becomes the reason of the failure that users see; the worker does not try again after a ConfigError.
        """
        ...
