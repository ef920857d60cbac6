"""Whether a caller may do something with a resource.

`Authorizer` is the port: one question, answered from memory, because every request asks it.  `AccessControl` is what
the use cases hold.  It turns a refusal into the error of the resource, for which each door has a code.  A use case
asks before it looks anything up, so that a refused caller does not learn whether the resource exists.  If a client
names a resource by an id of the server's, the use case resolves the id first, as Kafka does.

Operations are those of Kafka's ACLs, which can express both protocols.  Pulsar's `produce` is WRITE on a topic, and
`consume` is READ on a topic and a subscription.  Administration is CREATE, DELETE, ALTER and the CONFIGS operations.  A
Kafka group is a subscription without a topic.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from magnetar.broker.security.audit import Audit, Recording, Recordings
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.errors import (
    ClusterNotAuthorized,
    DelegationTokenNotAuthorized,
    GroupNotAuthorized,
    NamespaceNotAuthorized,
    NotAuthorized,
    PipelineNotAuthorized,
    TenantNotAuthorized,
    TopicNotAuthorized,
    TransactionalIdNotAuthorized,
)
from magnetar.broker.security.model import (
    CLUSTER,
    Caller,
    Operation,
    Resource,
    ResourceType,
    group_resource,
    topic_resource,
)
from magnetar.broker.security.pipeline_rights import is_own, notes_topic_in

# The operations on a resource of a type, as Kafka's tools show them (KIP-430).
OPERATIONS: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.SUBSCRIPTION: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
}


class Authorizer(Protocol):
    """The rules.  Every request asks them, so they answer at once: they do not wait and do no I/O."""

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool: ...

    def allows_any(self, caller: Caller, operation: Operation, kind: ResourceType) -> bool:
        """Whether the rules name a resource of this type, existing or not, with which the caller may do this."""
        ...

    @property
    def tells_hosts_apart(self) -> bool:
        """Whether what a principal may do may depend on its host."""
        ...


class AllowAll:
    """The rules of a server without authorization."""

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        return True

    def allows_any(self, caller: Caller, operation: Operation, kind: ResourceType) -> bool:
        return True

    @property
    def tells_hosts_apart(self) -> bool:
        return False


class AccessControl:
    """Answers the use cases whether a caller may, and writes to `audit` what they change and refuse."""

    def __init__(self, authorizer: Authorizer, audit: Audit, home: str = "") -> None:
        """`home` is the namespace of Kafka's clients (`tenant/namespace`), where pipelines have their notes."""
        self._authorizer = authorizer
        self._notes_topic = notes_topic_in(home)
        self._allows = authorizer.allows
        self._audit = audit

    def require(self, caller: Caller, operation: Operation, resource: Resource) -> None:
        """Return only if the caller may.

        Raises:
            NotAuthorized: the one of the resource's type.
        """
        allows = self._allows
        if not allows(caller, operation, resource) and not self._is_own(caller, operation, resource):
            self._audit.refused(caller, operation, resource)
            raise _refusal(caller, operation, resource.type, f"{resource.type.value} {resource.name}")

    def require_unnamed(self, caller: Caller, operation: Operation, resource: Resource) -> None:
        """As `require`, if the caller has not named the resource: the refusal does not reveal its name."""
        if not self._allows(caller, operation, resource):
            self._audit.refused(caller, operation, resource)
            raise _refusal(caller, operation, resource.type, f"a {resource.type.value} that it has not named")

    def require_lasting(self, caller: Caller) -> None:
        """Check that what the caller declares may act for it later, with all of its rights.  The proxy's rights do not
        count then.  So a proxy declares such a thing for its client only if the client may do anything: a client that
        may ALTER the cluster can take every right.

        Raises:
            ClusterNotAuthorized
        """
        if caller.proxy is not None:
            self.require(caller.proxy, Operation.ALTER, CLUSTER)

    def refused(self, caller: Caller, operation: Operation, resource: Resource) -> None:
        """Write down a refusal that a use case makes by a rule of its own."""
        self._audit.refused(caller, operation, resource)

    def change(
        self, caller: Caller, operation: Operation, resource: Resource, change: Change, /, **details: object
    ) -> Recording:
        """As `require`, for a change of state: make the change inside the context that this returns."""
        self.require(caller, operation, resource)
        return Recording(self._audit, caller, change, resource, details)

    def record(self, caller: Caller, change: Change, resource: Resource, /, **details: object) -> Recording:
        """As `change`, for a use case that asks for the right separately: before anything that may fail."""
        return Recording(self._audit, caller, change, resource, details)

    def record_each(self, several: Sequence[Recording]) -> Recordings:
        """As `record`, for changes that are one step."""
        return Recordings(self._audit, several)

    async def note(self, caller: Caller, change: Change, resource: Resource, /, **details: object) -> None:
        """Write down a change that was made on the way to something else."""
        self._audit.changed(caller, change, resource, details)
        await self._audit.handed_over()

    def note_often(self, caller: Caller, change: Change, resource: Resource) -> None:
        """As `Audit.changed_often`."""
        self._audit.changed_often(caller, change, resource)

    def permits(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """Whether the caller may: for listings, which leave out what it may not see, and where a right changes the
        answer.
        """
        return self._allows(caller, operation, resource) or self._is_own(caller, operation, resource)

    def permits_any(self, caller: Caller, operation: Operation, kind: ResourceType) -> bool:
        """Whether there may be a resource of this type with which the caller may do this."""
        return self._authorizer.allows_any(caller, operation, kind)

    @property
    def tells_hosts_apart(self) -> bool:
        """Whether what a principal may do may depend on its host."""
        return self._authorizer.tells_hosts_apart

    def permitted(self, caller: Caller, resource: Resource) -> list[Operation]:
        """All operations that the caller may do with a cluster, a topic or a group."""
        return [one for one in OPERATIONS[resource.type] if self._allows(caller, one, resource)]

    def takes_notes(self, caller: Caller, group: str, topic: str) -> bool:
        """Whether the caller is a pipeline, and the group's offsets of this topic are the pipeline's own notes."""
        return topic == self._notes_topic and self._is_own(caller, Operation.READ, group_resource(group))

    def _is_own(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """Whether the caller is a pipeline and the resource its own, in a topic that its owner may read."""
        if not is_own(caller, operation, resource, self._notes_topic):
            return False
        return not resource.topic or self._allows(caller, Operation.READ, topic_resource(resource.topic))


_REFUSALS: Final[dict[ResourceType, type[NotAuthorized]]] = {
    ResourceType.CLUSTER: ClusterNotAuthorized,
    ResourceType.TENANT: TenantNotAuthorized,
    ResourceType.NAMESPACE: NamespaceNotAuthorized,
    ResourceType.TOPIC: TopicNotAuthorized,
    ResourceType.SUBSCRIPTION: GroupNotAuthorized,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdNotAuthorized,
    ResourceType.PIPELINE: PipelineNotAuthorized,
    ResourceType.DELEGATION_TOKEN: DelegationTokenNotAuthorized,
    ResourceType.USER: DelegationTokenNotAuthorized,
}


def _refusal(caller: Caller, operation: Operation, kind: ResourceType, what: str) -> NotAuthorized:
    refusal = _REFUSALS[kind](f"{caller.principal} is not authorized to {operation.name} {what}")
    refusal.operation = operation
    return refusal
