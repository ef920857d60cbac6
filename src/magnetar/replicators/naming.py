"""The names of a replicator: of its pipeline, and of the subscription that keeps its place in its topic.

The server declares one pipeline for each replicator.  Its name follows from type, region and topic, so that the server
finds it again.  Users cannot declare pipelines with such names.

    replicator.<type>.<region>.<beginning of the topic's local name>-<digest of type, region and full name>
"""

import hashlib
import re
from typing import Final, NamedTuple

KIND: Final = "replicator"  # of pipelines
PIPELINES: Final = "replicator."  # the prefix of the pipelines that the server declares
SUBSCRIPTIONS: Final = "pulsar.repl."

WORD_CHARS_MAX: Final = 24
_WORD: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{WORD_CHARS_MAX}}}", re.ASCII)
_PARTS: Final = 3
_LOCAL_CHARS_MAX: Final = 20  # for people, who have `replicator-stats` for the whole name
_DIGEST_CHARS: Final = 16
_DOTS: Final = re.compile(r"\.{2,}")  # which no name of a pipeline has


class Named(NamedTuple):
    """The parts of the name of a replicator's pipeline."""

    type: str
    region: str


def is_word(text: str) -> bool:
    """Whether a type or a region can have this name: with a dot in it, two of them could share a subscription."""
    return _WORD.fullmatch(text) is not None


def named(pipeline: str) -> Named | None:
    """The type and the region of the replicator that runs as a pipeline; None if the pipeline is no replicator's."""
    parts = pipeline.removeprefix(PIPELINES).split(".", _PARTS - 1)
    if not pipeline.startswith(PIPELINES) or len(parts) != _PARTS:
        return None
    return Named(parts[0], parts[1])


def pipeline_name(type_name: str, region: str, topic: str) -> str:
    """The name of a replicator's pipeline; `topic` is the full name of its topic."""
    local = topic.rpartition("/")[2][:_LOCAL_CHARS_MAX].rstrip(".")
    digest = hashlib.sha256(f"{type_name} {region} {topic}".encode()).hexdigest()[:_DIGEST_CHARS]
    return _DOTS.sub(".", f"{PIPELINES}{type_name}.{region}.{local}-{digest}")


def subscription_name(type_name: str, region: str) -> str:
    return f"{SUBSCRIPTIONS}{type_name}.{region}"


def replicator_of(subscription: str) -> Named | None:
    """The type and the region of the replicators with a subscription; None if it is not one of a replicator."""
    kind, dot, region = subscription.removeprefix(SUBSCRIPTIONS).partition(".")
    return Named(kind, region) if subscription.startswith(SUBSCRIPTIONS) and dot else None


def subscription_of(pipeline: str) -> str | None:
    """The subscription of the replicator that runs as a pipeline; None if the pipeline is no replicator's."""
    found = named(pipeline)
    return None if found is None else subscription_name(found.type, found.region)
