"""What the replicator service is to replicate, and where to: a file of JSON.

    {"namespaces": {"public/orders": {"Kafka": {"us-west1": {
        "replicatorPolicies": {
            "replicationProperties": {"bootstrap.servers": "kafka:9092"},
            "topicNameMapping": {".+": "{topic}"}},
        "authParamData": {"sasl.username": "u", "sasl.password": "..."}}}}}}

What stands below type and region is the body by which REST adds a configuration to a namespace of a server.  The region
is the name that the target has among Pulsar's clusters, so it decides which messages come here.

With the key store `environment`, `authParamData` names variables of this process's environment.  Otherwise it has the
credentials themselves, and the file must be readable by its owner alone.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from magnetar.base.errors import ConfigError
from magnetar.replicators.naming import is_word
from magnetar.replicators.policies import ReplicatorPolicies, is_topic_name, matcher
from magnetar.replicators.registry import find_provider

ENVIRONMENT: Final = "environment"
# PIP-18's default one keeps credentials beside the policies, as this file does.
_IN_THE_FILE: Final = (None, "", "org.apache.pulsar.replicator.auth.DefaultAuthParamKeyStore")
TOKEN_BYTES_MIN: Final = 16
TOKEN_BYTES_MAX: Final = 64 << 10
FILE_BYTES_MAX: Final = 4 << 20
_NAMESPACE: Final = re.compile(r"[^/\s]{1,200}/[^/\s]{1,200}")
_OTHERS: Final = 0o077


@dataclass(frozen=True, slots=True)
class Target:
    """Where the topics of `namespace` go that a broker replicates to the cluster `policies.region`."""

    namespace: str
    type: str
    policies: ReplicatorPolicies


Targets = Mapping[tuple[str, str], Target]  # by namespace and region


def read_targets(file: Path, environment: Mapping[str, str]) -> Targets:
    """The targets of a configuration file.

    Raises:
        ConfigError: one sentence that names the place.
        OSError: the file cannot be read.
    """
    with file.open("rb") as opened:
        content = opened.read(FILE_BYTES_MAX + 1)
        mode = file.stat().st_mode
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(f"{file} has more than {FILE_BYTES_MAX} bytes")
    try:
        given = json.loads(content)
    except (ValueError, RecursionError):
        raise ConfigError(f"{file} is no JSON") from None
    namespaces = _object(f"{file}", given, {"namespaces"}).get("namespaces")
    found: dict[tuple[str, str], Target] = {}
    for place, namespace, type_name, region, one in _configurations(namespaces):
        target = _target(place, namespace, type_name, region, one, environment)
        if (namespace, region) in found:
            raise ConfigError(
                f"{place}: another type of this namespace has this region, which is one cluster's name"
            )
        if _has_secrets(one) and mode & _OTHERS:
            raise ConfigError(f"{file} has credentials, and other accounts can read it: chmod 600 it")
        found[namespace, region] = target
    if not found:
        raise ConfigError(f"{file} has no namespaces with a configuration")
    return found


def read_tokens(file: Path) -> tuple[bytes, ...]:
    """The tokens that brokers may show, a line each.

    Raises:
        ConfigError: there is none, or one is too short.
        OSError: the file cannot be read.
    """
    if file.stat().st_mode & _OTHERS:
        raise ConfigError(f"other accounts can read {file}, which has the tokens of brokers: chmod 600 it")
    with file.open("rb") as opened:
        found = tuple(line.strip() for line in opened.read(FILE_BYTES_MAX).splitlines() if line.strip())
    if not found or not all(TOKEN_BYTES_MIN <= len(token) <= TOKEN_BYTES_MAX for token in found):
        raise ConfigError(f"{file} must have tokens of at least {TOKEN_BYTES_MIN} bytes, a line each")
    return found


def _configurations(namespaces: Any) -> Iterator[tuple[str, str, str, str, Any]]:
    """(place in words, namespace, type, region, configuration) of each."""
    for namespace, types in _object("namespaces", namespaces).items():
        if not _NAMESPACE.fullmatch(namespace):
            raise ConfigError(f"namespaces: {namespace[:200]!r} must be tenant/namespace")
        for type_name, regions in _object(namespace, types).items():
            for region, one in _object(f"{namespace} {type_name}", regions).items():
                place = f"{namespace} {type_name} {region[:100]}"
                if not is_word(region):
                    raise ConfigError(f"{place}: a region has 1 to 24 letters, digits, _ and -")
                yield place, namespace, type_name, region, one


def _target(
    place: str, namespace: str, type_name: str, region: str, given: Any, environment: Mapping[str, str]
) -> Target:
    body = _object(place, given, {"replicatorPolicies", "authParamData"})
    policies = _object(
        f"{place} replicatorPolicies",
        body.get("replicatorPolicies"),
        {"replicationProperties", "authParamStorePluginName", "topicNameMapping"},
    )
    names = _object(f"{place} topicNameMapping", policies.get("topicNameMapping"))
    if not names or not all(isinstance(target, str) for target in names.values()):
        raise ConfigError(f"{place}: topicNameMapping must name the target of at least one topic, as a text")
    made = ReplicatorPolicies(
        region,
        _object(f"{place} replicationProperties", policies.get("replicationProperties", {})),
        names,
        policies.get("authParamStorePluginName"),
        _credentials(place, body, environment),
    )
    try:
        for key in names:
            if not is_topic_name(key):
                matcher(key)
        provider = find_provider(type_name)
        provider.validate_properties(namespace, made)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None
    works = getattr(provider, "works_without_offsets", None)
    if works is None or not works(made):
        raise ConfigError(
            f"{place}: with these properties the target needs the offsets of records, which the service does not have"
        )
    return Target(namespace, type_name, made)


def _credentials(
    place: str, body: Mapping[str, Any], environment: Mapping[str, str]
) -> Mapping[str, Any] | None:
    given = body.get("authParamData")
    if given is None:
        return None
    found = _object(f"{place} authParamData", given)
    if not _names_variables(body):
        if body["replicatorPolicies"].get("authParamStorePluginName") not in _IN_THE_FILE:
            raise ConfigError(f"{place}: authParamStorePluginName can be {ENVIRONMENT}, or be left out")
        return found
    for name, variable in found.items():
        if not isinstance(variable, str) or variable not in environment:
            raise ConfigError(
                f"{place}: authParamData: {name[:100]} must be the name of a variable of the environment"
            )
    return {name: environment[variable] for name, variable in found.items()}


def _has_secrets(body: Mapping[str, Any]) -> bool:
    return bool(body.get("authParamData")) and not _names_variables(body)


def _names_variables(body: Mapping[str, Any]) -> bool:
    return bool(body["replicatorPolicies"].get("authParamStorePluginName") == ENVIRONMENT)


def _object(place: str, given: Any, keys: set[str] | None = None) -> dict[str, Any]:
    """`given`, if it is an object with no other `keys`.  The error shows no value, because it may be a secret."""
    if not isinstance(given, dict):
        raise ConfigError(f"{place[:400]} must be an object")
    unknown = next((key for key in given if keys is not None and key not in keys), None)
    if unknown is not None:
        raise ConfigError(
            f"{place[:400]} has no {unknown[:100]!r}: there are {', '.join(sorted(keys or ()))}"
        )
    return given
