"""What the metadata store holds of ownership: paths, and JSON documents::

    /cluster/brokers/<broker>                        its node and its addresses (`cluster/place.py`)
    /cluster/bundles/<tenant>/<namespace>/<range>    {"v": 1, "owner": "b7", "generation": 12}
    /cluster/wishes/<tenant>/<namespace>/<range>     {"v": 1, "generation": 12, "to": "b8", "split": 0}
    /cluster/loads/<broker>                          {"v": 1, "loads": {"<tenant>/<namespace>/<range>": 2.5, ...}}

A **broker** is there while its session lasts: the path is ephemeral, and written once.  Its name is for one session: a
process that begins again, or whose session ended, takes another one.  So a `Check` of version 0 says that this broker
is alive, and a name never comes back to life.

A **record** stays when its owner's session ends, because its generation must not begin again: it is the leader epoch of
the bundle's logs.  No owner ("") means that the last one has let the bundle go.  A bundle gets a new owner under a
greater generation than all that any part of its range has had.  The records of a namespace are the ranges into which it
is cut; there is no other list of them.

A **wish** asks the owner of one generation to let the bundle go: to the broker `to`, or to any ("") that the leader
takes, or, with a boundary in `split`, to itself in two parts.  It has a path of its own, because an owner's commits
depend on the version of its record.

**Loads** are what a broker has to do for its bundles; the path is ephemeral.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.broker.cluster.bundles import Bundle, bundle_at, bundles_of
from magnetar.metadata.store import MUST_NOT_EXIST, Check, Delete, Put, Versioned

ROOT: Final = "/cluster/"
BROKERS: Final = f"{ROOT}brokers/"
RECORDS: Final = f"{ROOT}bundles/"
WISHES: Final = f"{ROOT}wishes/"
LOADS: Final = f"{ROOT}loads/"

NO_OWNER: Final = ""


def alive(broker: str) -> Check:
    """That the session of `broker` has not ended."""
    return Check(BROKERS + broker, 0)


def bundle_of(root: str, path: str) -> Bundle:
    """The bundle of a record's or a wish's path."""
    namespace, _, written_range = path[len(root) :].rpartition("/")
    return bundle_at(namespace, written_range)


@dataclass(frozen=True, slots=True)
class Record:
    """Who owns a bundle, as `version` of its path says."""

    bundle: Bundle
    owner: str
    generation: int
    version: int

    @staticmethod
    def read(path: str, stored: Versioned) -> "Record":
        document = json.loads(stored.value)
        return Record(bundle_of(RECORDS, path), document["owner"], document["generation"], stored.version)

    @property
    def unchanged(self) -> Check:
        return Check(record_path(self.bundle), self.version)

    def pass_to(self, owner: str) -> Put:
        """To a new owner, under a new generation."""
        return put_record(self.bundle, owner, self.generation + 1, self.version)

    def let_go(self) -> Put:
        return put_record(self.bundle, NO_OWNER, self.generation, self.version)

    def split(self, boundary: int) -> list[Delete | Put]:
        """Two records of the same owner for the two parts."""
        return [
            Delete(record_path(self.bundle), self.version),
            *(put_record(part, self.owner, self.generation + 1) for part in self.bundle.split(boundary)),
        ]


def records_root(namespace: str) -> str:
    """What the paths of a namespace's records begin with."""
    return f"{RECORDS}{namespace}/"


def record_path(bundle: Bundle) -> str:
    return f"{RECORDS}{bundle.namespace}/{bundle.range}"


def put_record(bundle: Bundle, owner: str, generation: int, expected_version: int = MUST_NOT_EXIST) -> Put:
    document = {"v": 1, "owner": owner, "generation": generation}
    return Put(record_path(bundle), json.dumps(document).encode(), expected_version)


def first_records(namespace: str, count: int) -> list[Put]:
    """What a new namespace that is cut into `count` ranges begins with: bundles that no broker has owned."""
    return [put_record(bundle, NO_OWNER, 0) for bundle in bundles_of(namespace, count)]


@dataclass(frozen=True, slots=True)
class Wish:
    """That the owner of `bundle` under `generation` lets it go: see the module's text."""

    bundle: Bundle
    generation: int
    to: str = NO_OWNER
    boundary: int = 0  # of a split
    version: int = 0

    @staticmethod
    def read(path: str, stored: Versioned) -> "Wish":
        document = json.loads(stored.value)
        return Wish(
            bundle_of(WISHES, path),
            document["generation"],
            document["to"],
            document["split"],
            stored.version,
        )

    @property
    def path(self) -> str:
        return f"{WISHES}{self.bundle.namespace}/{self.bundle.range}"

    def put(self) -> Put:
        document = {"v": 1, "generation": self.generation, "to": self.to, "split": self.boundary}
        return Put(self.path, json.dumps(document).encode(), MUST_NOT_EXIST)

    def delete(self) -> Delete:
        return Delete(self.path, self.version)


def put_loads(broker: str, loads: Mapping[Bundle, float]) -> Put:
    """What a broker says of all its bundles."""
    written = {f"{bundle.namespace}/{bundle.range}": load for bundle, load in loads.items()}
    return Put(LOADS + broker, json.dumps({"v": 1, "loads": written}).encode(), ephemeral=True)


def read_loads(stored: Versioned) -> dict[Bundle, float]:
    return {bundle_of("", name): load for name, load in json.loads(stored.value)["loads"].items()}
