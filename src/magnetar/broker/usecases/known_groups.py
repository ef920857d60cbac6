"""Which groups a caller may know of.

A subscription of any topic is a group of its name.  The administrators and the groups of Kafka's namespace see it as a
group only if it is also something there, or in a topic where they may see it.  The names of other tenants'
subscriptions belong to those tenants.
"""

from magnetar.broker.groups.coordinator import GroupCoordinator
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import CLUSTER, Caller, Operation, subscription_resource
from magnetar.broker.security.rule import namespace_of
from magnetar.ledger.cursor_store import CursorStore


class KnownGroups:
    """See the module's text.  `home` is the namespace of Kafka's clients (`tenant/namespace`)."""

    def __init__(
        self, access: AccessControl, groups: GroupCoordinator, cursors: CursorStore, home: str
    ) -> None:
        self._access = access
        self._groups = groups
        self._cursors = cursors
        self._home = home

    def is_shown(self, caller: Caller, group_id: str) -> bool:
        """Whether a caller with a right to the name may know that there is such a group; False if there is none."""
        if not self._groups.is_bare(group_id):
            return True
        permits = self._access.permits
        topics = self._cursors.topics_of(group_id)
        return any(
            namespace_of(topic) == self._home
            or permits(caller, Operation.DESCRIBE, subscription_resource(topic, group_id))
            for topic in topics
        ) or (bool(topics) and permits(caller, Operation.DESCRIBE, CLUSTER))

    def is_shown_in(self, caller: Caller, group_id: str, topic: str) -> bool:
        """Whether a caller that may describe the group, and the topic, may know where the group is in that topic."""
        permits = self._access.permits
        return (
            namespace_of(topic) == self._home
            or permits(caller, Operation.DESCRIBE, subscription_resource(topic, group_id))
            or permits(caller, Operation.DESCRIBE, CLUSTER)
        )

    def kept(self, caller: Caller, group_id: str) -> list[str]:
        """The full names of the topics of other namespaces in which a group's offsets are not the caller's to drop.

        Raises:
            GroupNotAuthorized: the group is nothing else.
        """
        topics = self._cursors.topics_of(group_id)
        elsewhere = [
            subscription_resource(topic, group_id) for topic in topics if namespace_of(topic) != self._home
        ]
        kept = [one for one in elsewhere if not self._access.permits(caller, Operation.DELETE, one)]
        if kept and len(kept) == len(topics) and self._groups.is_bare(group_id):
            self._access.require(caller, Operation.DELETE, kept[0])
        return [one.topic for one in kept]
