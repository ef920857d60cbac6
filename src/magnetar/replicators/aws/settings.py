"""Where a service of AWS is, and with whose credentials a replicator writes to it.

    {"awsRegion": "us-west-1", "awsEndpoint": "http://127.0.0.1:5000"}

The names are those of Pulsar's Kinesis sink.  A target is `name`, or `name:region` as PIP-18 writes it.

Without credentials a replicator would write as the worker itself: by its environment, its files, or the role of its
machine.  Users of a namespace choose the target, so the operator has to allow it: the variable
`AWS_REPLICATOR_NAMESPACES` of the worker's environment lists namespaces, as `acme/orders`, `acme/*` or `*/*`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from magnetar.replicators.errors import ReplicatorConfigError
from magnetar.replicators.policies import TOPIC_PLACE, ReplicatorPolicies
from magnetar.replicators.properties import Properties, check_credentials, check_properties, require_property

REGION: Final = "awsRegion"
ENDPOINT: Final = "awsEndpoint"
ACCESS_KEY: Final = "accessKey"
SECRET_KEY: Final = "secretKey"  # noqa: S105  the name of a credential
SESSION_TOKEN: Final = "sessionToken"  # noqa: S105
ALLOWED: Final = "AWS_REPLICATOR_NAMESPACES"
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,255}", re.ASCII)
_REGION: Final = re.compile(r"[a-z]{2,}(-[a-z]+)+-\d", re.ASCII)
_ENDPOINT: Final = re.compile(r"https?://(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+)(:\d{1,5})?/?", re.ASCII)
_CREDENTIALS: Final = (ACCESS_KEY, SECRET_KEY, SESSION_TOKEN)

# What every provider of a service has in its table.
PLACES: Final[Properties] = {
    REGION: ("the name of a region such as us-west-1", _REGION.fullmatch),
    ENDPOINT: ("http://host:port or https://host:port", _ENDPOINT.fullmatch),
}


@dataclass(frozen=True, slots=True)
class AwsTarget:
    """`name` is that of a stream or a table.  If `credentials` is empty, the replicator uses the worker's own."""

    service: str
    name: str
    region: str
    endpoint: str | None
    credentials: Mapping[str, str] = field(repr=False)


class AwsService:
    """One service, with the properties that it has besides: what both calls of its provider check."""

    def __init__(self, type_name: str, service: str, thing: str, properties: Properties) -> None:
        """`thing` is what the service calls a target."""
        self._type = type_name
        self._service = service
        self._thing = thing
        self._table = {**PLACES, **properties}

    def check(self, policies: ReplicatorPolicies) -> None:
        """Raises ReplicatorConfigError."""
        check_properties(self._type, policies.properties, self._table)
        check_credentials(self._type, policies.credentials, _CREDENTIALS)
        given = policies.credentials or {}
        if given and not {ACCESS_KEY, SECRET_KEY} <= given.keys():
            raise ReplicatorConfigError(
                f"credentials of a replicator to {self._type} need both {ACCESS_KEY} and {SECRET_KEY}"
            )
        for target in policies.topic_names.values():
            self._parsed(target.replace(TOPIC_PLACE, "topic"), policies.properties)
        if not policies.topic_names:
            require_property(self._type, policies.properties, REGION, "us-west-1")

    def target(self, topic: str, policies: ReplicatorPolicies, environment: Mapping[str, str]) -> AwsTarget:
        """The target of a topic.

        Raises:
            ReplicatorConfigError: also if there are no credentials, and the operator does not allow the worker's own.
        """
        self.check(policies)
        parts = topic.partition("://")[2].split("/")
        found = policies.target_of(parts[-1])
        if found is None:
            raise ReplicatorConfigError(f"topicNameMapping says no {self._thing} for {topic}: add one")
        name, region = self._parsed(found, policies.properties)
        credentials = dict(policies.credentials or {})
        if not credentials and not _Allowed.of(environment).allow(*parts[:2]):
            raise ReplicatorConfigError(
                f"a replicator to {self._type} needs the credentials {ACCESS_KEY} and {SECRET_KEY}: add them; the"
                f" worker's own are for namespaces that its variable {ALLOWED} lists"
            )
        return AwsTarget(self._service, name, region, policies.properties.get(ENDPOINT), credentials)

    def _parsed(self, target: str, properties: Mapping[str, Any]) -> tuple[str, str]:
        name, colon, region = target.rpartition(":")
        if not colon:
            name, region = target, ""
            require_property(self._type, properties, REGION, "us-west-1")
        if not _NAME.fullmatch(name) or (colon and not _REGION.fullmatch(region)):
            raise ReplicatorConfigError(
                f"{target[:300]!r} cannot be a {self._thing} of {self._type}: give its name, or name:region"
            )
        return name, region or properties[REGION]


@dataclass(frozen=True, slots=True)
class _Allowed:
    """Namespaces whose replicators may write as the worker."""

    rules: frozenset[str]

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        return cls(frozenset(re.split(r"[,\s]+", environment.get(ALLOWED, ""))))

    def allow(self, tenant: str, namespace: str) -> bool:
        return not self.rules.isdisjoint((f"{tenant}/{namespace}", f"{tenant}/*", "*/*"))
