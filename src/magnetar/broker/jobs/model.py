"""A pipeline, its desired state, and what the worker reports of it and of itself; what instances of functions say, and
what functions keep: values.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from magnetar.broker.security.model import ANONYMOUS, OF_PIPELINE, Principal
from magnetar.replicators.naming import subscription_of

LEASE_S: Final = 30.0
OWNER_TOKEN_S: Final = 600.0
WORKER_ID_CHARS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class PipelineKeys:
    """The secrets of a server's pipelines: `of_tokens` makes tokens of owners, `sealing` seals configurations, and
    `old_sealing` opens those that were sealed before; empty if there is none.
    """

    of_tokens: bytes = field(default=b"", repr=False)
    sealing: bytes = field(default=b"", repr=False)
    old_sealing: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Holder:
    """A worker: `worker` is a name that no other worker ever had, `host` and `pid` say where it runs, and `place` is
    the directory that it has locked, as host:path.
    """

    worker: str
    epoch: int
    host: str
    pid: int
    place: str


class Desired(StrEnum):
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    DELETED = "DELETED"


class State(StrEnum):
    """What a pipeline does.  FAILED always has a reason."""

    CREATED = "CREATED"  # and no worker has looked at it
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    FAILED = "FAILED"
    STOPPED = "STOPPED"
    DELETING = "DELETING"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A declared pipeline, as `pipelines.py` stores it.  `owner` declared it, and its query acts for the owner.

    `sealed` is the stored form of `config`, and empty until it has been sealed.  If there is a `trouble`, `sealed`
    cannot be opened: `config` is empty, and the pipeline cannot run.
    """

    name: str
    id: str
    kind: str
    config: Mapping[str, Any]
    desired: Desired
    run: int
    created_ms: int
    owner: Principal = ANONYMOUS
    sealed: str = field(default="", compare=False)
    trouble: str = ""

    @property
    def seal(self) -> str:
        """What its sealed configuration is bound to."""
        return f"pipeline {self.name} {self.id}"

    @property
    def subscription(self) -> str:
        """The name of the subscription that keeps its place, and its data."""
        return subscription_of(self.name) or OF_PIPELINE + self.name

    def encode(self) -> bytes:
        document = {
            "v": 3,
            "id": self.id,
            "kind": self.kind,
            "sealed": self.sealed,
            "desired": self.desired,
            "run": self.run,
            "created_ms": self.created_ms,
            "owner": [self.owner.kind, self.owner.name],
        }
        return json.dumps(document).encode()

    @classmethod
    def decode(cls, name: str, stored: bytes) -> "Pipeline":
        document = json.loads(stored)
        owner = document.get("owner")  # not in version 1: they ran before there were owners
        return cls(
            name,
            document["id"],
            document["kind"],
            document.get("config", {}),  # of versions 1 and 2, which sealed nothing
            Desired(document["desired"]),
            document["run"],
            document["created_ms"],
            ANONYMOUS if owner is None else Principal(*owner),
            document.get("sealed", ""),
        )


@dataclass(frozen=True, slots=True)
class Report:
    """The worker's last report of a pipeline: which run it is about, its state, and numbers."""

    id: str
    run: int
    state: State
    reason: str
    status: Mapping[str, Any]
    at_ms: int


@dataclass(slots=True)
class WorkerSays:
    """The worker's last report of itself; `trouble` is why it cannot run any pipeline."""

    trouble: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Trouble:
    """An exception, as its traceback, and when it was."""

    text: str
    at_ms: int


class FunctionName(NamedTuple):
    """The whole name of a function, by which clients mean it."""

    tenant: str
    namespace: str
    name: str

    @property
    def namespace_name(self) -> str:
        return f"{self.tenant}/{self.namespace}"


@dataclass(slots=True)
class InstanceSays:
    """What an instance of a function last said, or the server of it: kept in memory only.

    `numbers` are counts since its process began; `one_minute` the same of the last minute.
    """

    running: bool = False
    error: str = ""
    restarts: int = 0
    numbers: Mapping[str, float] = field(default_factory=dict)
    one_minute: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    last_invocation_ms: int = 0
    user_exceptions: tuple[Trouble, ...] = ()
    system_exceptions: tuple[Trouble, ...] = ()


@dataclass(frozen=True, slots=True)
class Kept:
    """The state of one key: bytes, or a counter; `version` counts its changes."""

    data: bytes | None
    number: int | None
    version: int


@dataclass(frozen=True, slots=True)
class Link:
    """A topic (full name, id in hex) that is a copy of another cluster's.

    `source` is where that cluster is, as the user has named it (`kafka://host:9092`).  `origin` says which topic it is
    even if another one gets its name: two links with one `origin` copy the same records.
    """

    topic_id: str
    topic: str
    source: str
    origin: str
    created_ms: int


@dataclass(frozen=True, slots=True)
class LinkReport:
    """What the program that copies says: how many records it is behind, what went wrong last (empty: nothing), and
    when that was.
    """

    lag: int
    error: str
    at_ms: int
