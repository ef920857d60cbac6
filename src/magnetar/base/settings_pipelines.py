"""The server's keys for the worker that runs pipelines."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from magnetar.base import replicator_variables
from magnetar.base.config import ConfigType, Value
from magnetar.base.errors import ConfigError
from magnetar.base.replicator_variables import ReplicatorVariables
from magnetar.base.server_key import ServerKey
from magnetar.base.table_roots import SETTING, TableRoots

FUNCTIONS: Final = "functionsWorkerEnabled"  # as in Pulsar's broker.conf
FUNCTIONS_READABLE: Final = "functions.readable.folders"
WORKER_CONTEXT: Final = "pipelines.worker.context"

_MEMORY: Final = re.compile(r"[1-9]\d{0,6}[mMgG]")


def _memory(value: Value) -> str | None:
    return None if _MEMORY.fullmatch(str(value)) else "must be a number of MiB or GiB, such as 512m or 2g"


def _roots(value: Value) -> str | None:
    try:
        TableRoots.of(value if isinstance(value, tuple | list) else [])
    except ConfigError as error:
        return str(error).removeprefix(f"{SETTING}: ")
    return None


def _variables(value: Value) -> str | None:
    try:
        ReplicatorVariables.of(value if isinstance(value, tuple | list) else [])
    except ConfigError as error:
        return str(error).removeprefix(f"{replicator_variables.SETTING}: ")
    return None


def _folders(value: Value) -> str | None:
    for one in value if isinstance(value, tuple | list) else []:
        if not Path(one).is_absolute():
            return f"must be absolute paths, and {one[:200]!r} is none"
    return None


PIPELINE_KEYS: Final = (
    ServerKey(
        "pipelines.worker.enabled",
        ConfigType.BOOLEAN,
        "true",
        "Whether the server starts a worker (`magnetar worker`) of its own when there are pipelines, and installs Spark"
        " for it; false: one is started elsewhere.",
    ),
    ServerKey(
        "pipelines.worker.master",
        ConfigType.STRING,
        "local[*]",
        "The Spark master of the server's own worker: this machine, or a cluster such as spark://host:7077.",
    ),
    ServerKey(
        WORKER_CONTEXT,
        ConfigType.STRING,
        "",
        "A file with a context (`magnetar context`), with whose address and `ca` that worker reaches a "
        "server that requires TLS. Pipelines log in as their owners.",
    ),
    ServerKey(
        "pipelines.table.roots",
        ConfigType.LIST,
        "",
        "Folders, and URLs such as s3://bucket/prefix, inside which pipelines' tables may be, in addition "
        "to `tables` in the data directory.",
        check=_roots,
    ),
    ServerKey(
        "pipelines.worker.memory",
        ConfigType.STRING,
        "1g",
        "The memory of that worker's Spark driver, without what its Python processes take.",
        check=_memory,
    ),
    ServerKey(
        FUNCTIONS,
        ConfigType.BOOLEAN,
        "false",
        "Whether the server runs Pulsar Functions in Python. They are programs of users, which run under the server's"
        " account. They cannot open the server's files if the kernel has Landlock (Linux 5.13).",
    ),
    ServerKey(
        FUNCTIONS_READABLE,
        ConfigType.LIST,
        "",
        "Folders that all functions may read, besides the machine's programs and libraries.",
        check=_folders,
    ),
    ServerKey(
        replicator_variables.SETTING,
        ConfigType.LIST,
        "",
        "Variables of the server's environment that replicators may use as credentials, and functions as secrets, as"
        " tenant/namespace:VARIABLE. A tenant or a namespace may be `*`, and a variable may end with it. The key store"
        " `environment` sends what is in them to targets that administrators of tenants choose, and gives it to the"
        " code of functions.",
        check=_variables,
    ),
)


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Whether the server has a worker of its own, and the settings of its Spark; tables may be in `table_roots`, and
    replicators may read `replicator_variables`.  `functions_enabled`: it runs functions, which may read
    `functions_readable`.

    `worker_context` is the file of the context by which the worker reaches the server, empty where it needs none.
    """

    worker_enabled: bool
    worker_context: str
    master: str
    memory: str
    table_roots: TableRoots
    functions_enabled: bool
    functions_readable: tuple[Path, ...]
    replicator_variables: ReplicatorVariables = field(default_factory=ReplicatorVariables)


def pipelines(
    text: Callable[[str], str],
    boolean: Callable[[str], bool],
    listed: Callable[[str], tuple[str, ...]],
    data_dir: Path,
) -> PipelineSettings:
    """The settings, by what reads a key."""
    return PipelineSettings(
        boolean("pipelines.worker.enabled"),
        text(WORKER_CONTEXT),
        text("pipelines.worker.master"),
        text("pipelines.worker.memory"),
        TableRoots.of([str(data_dir / "tables"), *listed("pipelines.table.roots")]),
        boolean(FUNCTIONS),
        tuple(map(Path, listed(FUNCTIONS_READABLE))),
        ReplicatorVariables.of(listed(replicator_variables.SETTING)),
    )
