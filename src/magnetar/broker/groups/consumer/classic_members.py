"""Members of the classic protocol in a group of the consumer protocol (KIP-848's migration between the two).

JoinGroup, SyncGroup and Heartbeat of such a member are answered from the state of the consumer protocol: its
generation is its epoch, the server assigns, and no member leads.  A heartbeat's answer shows a member that it gets
more partitions or must release some.  The member then joins again, and says what it owns.  It has its rebalance
time-out to join, and the same time again to ask for its assignment.
"""

from collections.abc import Callable
from typing import Final

from magnetar.broker.groups.catalogue import TopicCatalogue
from magnetar.broker.groups.consumer.checks import JOIN
from magnetar.broker.groups.consumer.embedded import Malformed, assignment, subscription
from magnetar.broker.groups.consumer.group import ClassicPart, ConsumerGroup, ConsumerMember, MemberState
from magnetar.broker.groups.consumer.heartbeats import Heartbeats, Refused
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import (
    NO_MEMBER,
    ConsumerHeartbeat,
    JoinReply,
    JoinRequest,
    JoinResult,
    SyncReply,
    SyncRequest,
    SyncResult,
)
from magnetar.broker.groups.subscription import CONSUMER_PROTOCOL_TYPE

NO_LEADER: Final = ""


class ClassicMembers:
    """The rules for classic members of one coordinator's groups, on top of the rules for members of the consumer
    protocol.

    `full_name` returns the full name of a topic that a client names.
    """

    def __init__(
        self,
        rules: Heartbeats,
        catalogue: TopicCatalogue,
        full_name: Callable[[str], str],
        *,
        new_id: Callable[[], str],
    ) -> None:
        self._rules = rules
        self._catalogue = catalogue
        self._full_name = full_name
        self._new_id = new_id

    def join(self, group: ConsumerGroup, request: JoinRequest, reply: JoinReply) -> None:
        """JoinGroup: answered at once.  The group's next epoch must be stored already."""
        names = [name for name, _ in request.protocols]
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not group.supports(names):
            reply(JoinResult(GroupError.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
            return
        member_id = request.member_id
        if member_id == NO_MEMBER:
            member_id = f"{request.group_instance_id or request.client_id}-{self._new_id()}"
            if request.group_instance_id is None and request.require_known_member_id:
                reply(JoinResult(GroupError.MEMBER_ID_REQUIRED, member_id))
                return
        try:
            said = subscription(request.protocols[0][1], self._full_name)
            wanted = ConsumerHeartbeat(
                request.group_id,
                member_id,
                JOIN,
                request.group_instance_id,
                said.rack_id,
                request.rebalance_timeout_ms,
                said.names,
                tuple(map(self._full_name, said.names)),
                "",
                owned={
                    found[0]: indexes
                    for topic, indexes in said.owned.items()
                    if (found := self._catalogue.found(topic)) is not None
                },
                client_id=request.client_id,
                client_host=request.client_host,
                has_own_id=request.member_id != NO_MEMBER,
                viewer=request.viewer,
            )
            part = ClassicPart(request.protocols, request.session_timeout_ms, said.version)
            member = self._rules.join_classic(group, wanted, part)
        except Malformed:
            reply(JoinResult(GroupError.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
            return
        except Refused as refusal:
            reply(JoinResult(refusal.error, request.member_id))
            return
        self._rules.watch.limit(group, member)  # until it asks for its assignment
        reply(
            JoinResult(
                GroupError.NONE, member.member_id, member.epoch, CONSUMER_PROTOCOL_TYPE, names[0], NO_LEADER
            )
        )

    def sync(self, group: ConsumerGroup, request: SyncRequest, reply: SyncReply) -> None:
        """SyncGroup: answered at once."""
        try:
            member, part = self._member(
                group, request.member_id, request.group_instance_id, request.generation
            )
        except Refused as refusal:
            reply(SyncResult(refusal.error))
            return
        name = part.protocols[0][0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (
            None,
            name,
        ):
            reply(SyncResult(GroupError.INCONSISTENT_GROUP_PROTOCOL))
        elif group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED:
            self._to_join_again(group, member)
            reply(SyncResult(GroupError.REBALANCE_IN_PROGRESS))
        else:
            member.stop_rebalance_timer()
            self._rules.keep_alive(group, member)
            named = (
                (self._catalogue.shown_name(topic), partitions)
                for topic, partitions in member.assigned.items()
            )
            given = assignment(part.version, [(shown, each) for shown, each in named if shown is not None])
            reply(SyncResult(GroupError.NONE, given, CONSUMER_PROTOCOL_TYPE, name))

    def heartbeat(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> GroupError:
        """Heartbeat: the answer may ask the member to join again.  It does so if the member has partitions to release
        or to get.  It also does so if rules name hosts by now, and the member has joined without its own host.
        """
        try:
            member, _ = self._member(group, member_id, instance_id, generation)
        except Refused as refusal:
            return refusal.error
        self._rules.keep_alive(group, member)
        self._rules.assign_if_due(group)
        if (
            not member.subscription.viewer.is_current()
            or member.epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED
            or (member.state is MemberState.UNRELEASED and group.lacks_what_is_free(member))
        ):
            self._to_join_again(group, member)
            return GroupError.REBALANCE_IN_PROGRESS
        return GroupError.NONE

    def _to_join_again(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        if member.rebalance_timer is None:
            self._rules.watch.limit(group, member)

    def _member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ConsumerMember, ClassicPart]:
        member = self._rules.member(group, member_id, instance_id)
        if member.classic is None:
            raise Refused(GroupError.UNKNOWN_MEMBER_ID)
        if generation != member.epoch:
            raise Refused(GroupError.ILLEGAL_GENERATION)
        return member, member.classic
