"""Write docs/reference/kafka-apis.md from the handlers that exist: `python tools/kafka_api_reference.py`.

What a handler serves is in its `VERSIONS` and in the text on top of its file; the page repeats both.  `NOT_SERVED` has
all other APIs of Kafka.  One test holds the page to what this makes, and another one compares both lists together with
Kafka's.
"""

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from magnetar.protocols.kafka.apis import load_apis
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.schema import APIS

FILE = Path(__file__).parent.parent / "docs" / "reference" / "kafka-apis.md"

INTRODUCTION = """\
# Kafka APIs

<!-- Made by tools/kafka_api_reference.py from src/magnetar/protocols/kafka/handlers: change those. -->

This page lists what the Kafka listener serves, by API key. ApiVersions tells clients the same, because both are made
from the handlers that exist. For any other request the server closes the connection and logs one line, as Apache
Kafka does. "Known" is the range of versions that Apache Kafka 4.3 has.
"""


NOT_SERVED_INTRODUCTION: Final = """\
Apache Kafka 4.3 has these APIs, too. No producer, consumer or stream uses one of them; of Kafka's tools only
`kafka-features.sh` (to change levels), `kafka-cluster.sh unregister` and `kafka-metadata-quorum.sh` (to add or remove a
controller) do.
"""

# By reason, the APIs by key.
NOT_SERVED: Final[Mapping[str, Mapping[int, str]]] = {
    "Kafka 4 has no version of them: the controller of a cluster on ZooKeeper and its brokers sent them to each"
    " other.": {
        4: "LeaderAndIsr",
        5: "StopReplica",
        6: "UpdateMetadata",
        7: "ControlledShutdown",
    },
    "Kafka's controllers, and the brokers that follow them, send them to a controller, to agree on the cluster's"
    " metadata (KIP-595, KIP-630, KIP-853, KIP-919). Magnetar has no controllers: it keeps metadata in one store.": {
        52: "Vote",
        53: "BeginQuorumEpoch",
        54: "EndQuorumEpoch",
        59: "FetchSnapshot",
        70: "ControllerRegistration",
        82: "UpdateRaftVoter",
    },
    "Kafka's brokers send them to the controller: that they are there, which replicas are in sync and where, and"
    " requests of their clients. All broker ids of Magnetar are one process, which has nothing to report to another"
    " one.": {
        56: "AlterPartition",
        58: "Envelope",
        62: "BrokerRegistration",
        63: "BrokerHeartbeat",
        67: "AllocateProducerIds",
        73: "AssignReplicasToDirs",
    },
    "Kafka's brokers send them to the share coordinator, which keeps what share groups have acknowledged (KIP-932)."
    " Magnetar keeps that in the subscription with the group's name, and no other process asks for it.": {
        83: "InitializeShareGroupState",
        84: "ReadShareGroupState",
        85: "WriteShareGroupState",
        86: "DeleteShareGroupState",
        87: "ReadShareGroupStateSummary",
    },
    "An administrator adds a voter to the quorum of controllers or removes one (KIP-853). The quorum that"
    " DescribeQuorum shows has one voter, and takes no other.": {
        80: "AddRaftVoter",
        81: "RemoveRaftVoter",
    },
    "An administrator changes the level of a feature (KIP-584). The levels that ApiVersions shows are fixed.": {
        57: "UpdateFeatures",
    },
    "An administrator makes a cluster forget a broker that will not come back (KIP-631). Magnetar forgets a broker id"
    " at the first start without it, and other ids serve its partitions.": {
        64: "UnregisterBroker",
    },
}


def render() -> str:
    """The whole page."""
    served = load_apis()
    names = {api.key: api.name for api in APIS}
    known = {api.key: api.versions for api in APIS}
    rows = ["| key | API | served | known |", "|---:|---|---|---|"]
    rows += [
        f"| {key} | [{names[key]}](#{names[key].lower()}) | {_served(api)} | {known[key]} |"
        for key, api in served.items()
    ]
    sections = [f"## {names[key]}\n\n{_prose(api)}\n" for key, api in served.items()]
    missing = [f"{names[key]} ({key})" for key in sorted(names) if key not in served]
    assert not missing, f"the page has to tell of {', '.join(missing)}"
    return "\n".join([INTRODUCTION, "\n".join(rows) + "\n", _not_served(), *sections])


def _not_served() -> str:
    rows = ["| key | API | reason |", "|---:|---|---|"]
    rows += [
        f"| {', '.join(map(str, apis))} | {', '.join(apis.values())} | {reason} |"
        for reason, apis in NOT_SERVED.items()
    ]
    return "\n".join(["## Not served", "", NOT_SERVED_INTRODUCTION, *rows, ""])


def _served(api: Api[Any]) -> str:
    low, high = api.min_version, api.max_version
    return f"{low}" if low == high else f"{low}-{high}"


def _prose(api: Api[Any]) -> str:
    """The handler's own text, its first word (the API's name) left out."""
    handler = importlib.import_module(f"magnetar.protocols.kafka.handlers.{api.name}")
    text = inspect.cleandoc(handler.__doc__ or "").partition(": ")[2]
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(render())
