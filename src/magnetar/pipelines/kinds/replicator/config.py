"""The configuration of a pipeline of the kind `replicator`, checked, and the file by which its processes get it.

Properties and credentials of a target are secrets.  Spark shows options of a query in its plans.  So the sink's only
option is the name of a file that only this account can read; the processes that write to the target read it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from magnetar.base.errors import ConfigError
from magnetar.base.names import PERSISTENT
from magnetar.base.private import write_secret
from magnetar.pipelines.kinds.config_values import check_keys, text_at, trigger_at
from magnetar.replicators.policies import ReplicatorPolicies
from magnetar.replicators.registry import find_provider

RECORDS_DEFAULT: Final = 1_000_000
_KEYS: Final = {
    "topic": True,
    "type": True,
    "region": True,
    "target": True,
    "properties": False,
    "auth_plugin": False,
    "credentials": False,
    "trigger": False,
    "records_per_batch": False,
}


def checked(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with its defaults.

    Raises ConfigError: one sentence that names the key.
    """
    check_keys(config, _KEYS)
    made: dict[str, Any] = {
        "topic": _topic(text_at(config, "topic")),
        "type": text_at(config, "type"),
        "region": text_at(config, "region"),
        "target": text_at(config, "target"),
        "properties": _object(config, "properties") or {},
        "auth_plugin": None if config.get("auth_plugin") is None else text_at(config, "auth_plugin"),
        "credentials": _object(config, "credentials"),
        "trigger": trigger_at(config),
        "records_per_batch": _number(config, "records_per_batch", RECORDS_DEFAULT),
    }
    namespace = "/".join(made["topic"].removeprefix(PERSISTENT).split("/")[:2])
    find_provider(made["type"]).validate_properties(namespace, _policies(made))
    return made


def _policies(values: Mapping[str, Any], replicator_id: str = "") -> ReplicatorPolicies:
    """What the provider gets of a checked configuration: its topic is mapped to its target."""
    return ReplicatorPolicies(
        values["region"],
        values["properties"],
        {values["topic"].rpartition("/")[2]: values["target"]},
        values["auth_plugin"],
        values["credentials"],
        replicator_id,
    )


def _topic(name: str) -> str:
    parts = name.removeprefix(PERSISTENT).split("/")
    if not name.startswith(PERSISTENT) or len(parts) != 3 or not all(parts):
        raise ConfigError(
            f"topic must be a full name such as persistent://tenant/namespace/orders, not {name[:200]!r}"
        )
    return name


def _object(config: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ConfigError(f"{key} must be an object")
    return dict(value)


def _number(config: Mapping[str, Any], key: str, default: int) -> int:
    value = config.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{key} must be a number of at least 1")
    return value


@dataclass(frozen=True, slots=True)
class ReplicatorConfig:
    """What every process of a replicator works from; `values` is what `checked` made.

    name, id   of the pipeline
    admin_url  of the server, which has the schemas
    bootstrap  of the server, where dead letters are written to
    context    how to log in there; empty where it asks for nothing
    subscription  of the pipeline, which its dead-letter topic is named after
    """

    name: str
    id: str
    values: Mapping[str, Any]
    admin_url: str
    bootstrap: str
    context: str
    subscription: str

    def write(self, file: Path) -> None:
        """For this account alone.  Raises OSError."""
        write_secret(file, json.dumps({**asdict(self), "values": dict(self.values)}).encode())

    @classmethod
    def read(cls, file: str) -> Self:
        """What `write` wrote.

        Raises:
            OSError: the pipeline has ended.
        """
        return cls(**json.loads(Path(file).read_bytes()))

    @property
    def policies(self) -> ReplicatorPolicies:
        """What the provider opens a producer with."""
        return _policies(self.values, self.id)

    @property
    def own_name(self) -> str:
        """What names of the pipeline's own begin with, so that its owner needs no right to them: replicators of many
        topics have subscriptions of one name.
        """
        return f"pipeline-{self.name}"

    def dead_letter_topic(self, topic: str) -> str:
        """As Pulsar's clients call it."""
        return f"{topic}-{self.subscription}-DLQ"
