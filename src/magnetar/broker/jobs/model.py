"""What a pipeline is, what is wanted of it, and what the worker says of it and of itself: values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

LEASE_S: Final = 30.0
WORKER_ID_CHARS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Holder:
    """A worker: `worker` is a name that no other one ever had, `host` and `pid` say where it runs, and `place` is the
    directory that it has locked, as host:path.
    """

    worker: str
    epoch: int
    host: str
    pid: int
    place: str


SUBSCRIPTION_PREFIX: Final = "pipeline-"


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
    """A declared pipeline, as `pipelines.py` stores it."""

    name: str
    id: str
    kind: str
    config: Mapping[str, Any]
    desired: Desired
    run: int
    created_ms: int

    @property
    def subscription(self) -> str:
        """The name of the subscription that keeps its place, and its data."""
        return SUBSCRIPTION_PREFIX + self.name

    def encode(self) -> bytes:
        document = {
            "v": 1,
            "id": self.id,
            "kind": self.kind,
            "config": self.config,
            "desired": self.desired,
            "run": self.run,
            "created_ms": self.created_ms,
        }
        return json.dumps(document).encode()


@dataclass(frozen=True, slots=True)
class Report:
    """What the worker last said of a pipeline: which run of it this is about, its state, and numbers."""

    id: str
    run: int
    state: State
    reason: str
    status: Mapping[str, Any]
    at_ms: int


@dataclass(slots=True)
class WorkerSays:
    """What the worker last said of itself; `trouble` is why it cannot run anything."""

    trouble: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    at_ms: int = 0
