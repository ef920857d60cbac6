"""Groups of the consumer protocol under random members, topics, losses and restarts: a model of what clients own.

Clients behave as their protocol says: they give back what is no longer assigned before they report it, take what is
assigned, and begin anew when they are fenced.  Some speak the classic protocol, with cooperative rebalancing.  Answers
get lost, members fall silent, servers restart.  At all times

* no two members that the server knows own one partition;
* epochs of groups and members only grow, also over restarts;
* who owns a partition can commit to it; who the server has given up cannot, and what was sent before it was given up is
  refused when it comes late.

When all behave for a while, the group is Stable, and each partition is owned by a member that subscribes to it.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from magnetar.broker.groups.consumer.embedded import assigned
from magnetar.broker.groups.consumer.group import ConsumerGroup
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import ConsumerHeartbeatResult, GroupState, JoinRequest, OffsetToCommit
from magnetar.broker.groups.settings import GroupSettings
from magnetar.testing.groups import GroupDriver, topic_id
from magnetar.wire.kafka.messages import consumer_protocol_subscription as codec
from tests.examples import at_least

TOPICS = ("t", "u", "v")
# A group stays one of the consumer protocol: classic ones have a simulation of their own.
SETTINGS = GroupSettings(group_initial_rebalance_delay_ms=0, group_consumer_migration_policy="disabled")
REJOIN = (GroupError.FENCED_MEMBER_EPOCH, GroupError.UNKNOWN_MEMBER_ID, GroupError.GROUP_ID_NOT_FOUND)

Partition = tuple[str, int]


class Client:
    """One consumer; `wanted` is what the server has said that it is to own, as far as it has heard."""

    def __init__(
        self, number: int, instance_id: str | None, topics: tuple[str, ...], *, is_classic: bool = False
    ) -> None:
        self.number = number
        self.is_classic = is_classic
        self.instance_id = instance_id
        self.topics = topics
        self.lives = 0
        self.begin()

    def begin(self) -> None:
        self.lives += 1
        # A client keeps its id, so only epochs tell its lives apart; a classic one is given a new one.
        self.member_id = "" if self.is_classic else f"m{self.number}"
        self.epoch = 0
        self.owned: set[Partition] = set()
        self.wanted: set[Partition] = set()
        self.told: set[Partition] | None = None  # what it has said that it owns, and the server has heard
        self.said: tuple[str, ...] | None = None  # what a classic one subscribed to when it last joined

    def __repr__(self) -> str:
        return f"{self.member_id}@{self.epoch}{sorted(self.owned)}"


class ConsumerGroups(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.groups = GroupDriver(SETTINGS)
        self.groups.catalogue.partitions.clear()
        self.groups.catalogue.partitions["t"] = 4
        self.clients: list[Client] = []
        self.left: dict[str, Client] = {}  # static members that are expected back, by instance
        self.number = 0
        self.epoch = 0  # the highest that was seen
        self.late: list[
            tuple[str, int, Partition]
        ] = []  # commits on their way when their member was given up

    def teardown(self) -> None:
        if hasattr(self, "groups"):
            with self.groups:
                pass

    # --- what clients do ---------------------------------------------------------------------------------------------

    def send(self, client: Client, *, heard: bool = True, full: bool = False) -> None:
        if client.is_classic:
            self.send_classic(client, heard=heard, full=full)
            return
        joins = client.epoch == 0
        owned: dict[str, set[int]] = {}
        for topic, partition in client.owned:
            owned.setdefault(topic, set()).add(partition)
        result = self.groups.beat(
            client.member_id,
            client.epoch,
            *(client.topics if joins or full else ()),
            owned=owned if joins or full or client.owned not in (client.told, self.busy(client)) else None,
            instance_id=client.instance_id,
            rebalance_timeout_ms=30_000 if joins or full else -1,
        )
        client.told = set(client.owned) if heard else None
        if heard:
            self.hear(client, result)

    def send_classic(self, client: Client, *, heard: bool, full: bool) -> None:
        """A heartbeat of the classic protocol, and joining again where that is the answer, or to be done anyway.

        A lost answer to JoinGroup or SyncGroup makes the client join again.  While the group has no members it keeps
        away: it would make a classic group of it.
        """
        group = self.group()
        if group is None or not group.members:
            client.begin()
            return
        # It joins again for other topics, too; where its callbacks run at that moment, when they have.
        if client.epoch > 0 and not full and client.topics == client.said:
            error = self.groups.call(self.groups.coordinator.heartbeat, "g", client.member_id, client.epoch)
            if error is GroupError.NONE or not heard:
                return
            if error is not GroupError.REBALANCE_IN_PROGRESS:
                self.give_up(client)
                return
        if client.owned != client.wanted:
            return  # it joins when its callbacks have run
        for _ in range(10):
            client.said = client.topics
            joined = self.groups.join(self.join_request(client)).join
            if joined.error is GroupError.MEMBER_ID_REQUIRED:
                client.member_id = joined.member_id
                continue
            if joined.error is not GroupError.NONE:
                assert joined.error in (*REJOIN, GroupError.ILLEGAL_GENERATION), joined
                self.give_up(client)
                return
            if not heard:
                return
            synced = self.groups.sync(joined).sync
            if synced.error is GroupError.REBALANCE_IN_PROGRESS:
                continue
            assert synced.error is GroupError.NONE, synced
            client.epoch = joined.generation
            given = assigned(synced.assignment, str)
            client.wanted = {(topic, one) for topic in given for one in given[topic]}
            return

    def join_request(self, client: Client) -> JoinRequest:
        rows: dict[str, list[int]] = {}
        for topic, partition in sorted(client.owned):
            rows.setdefault(topic, []).append(partition)
        said = codec.ConsumerProtocolSubscription(
            list(client.topics), None, [codec.TopicPartition(*one) for one in rows.items()]
        )
        out: list[Any] = [b"\0\1"]
        codec.encode(1, said, out)
        return self.groups.request("g", client.member_id, protocols=(("cooperative", b"".join(out)),))

    @staticmethod
    def busy(client: Client) -> set[Partition] | None:
        """What it owns while its callbacks run, of which it says nothing."""
        return client.owned if client.owned != client.wanted else None

    def hear(self, client: Client, result: ConsumerHeartbeatResult) -> None:
        match result.error:
            case GroupError.NONE:
                assert result.epoch >= client.epoch, (client, result)
                client.epoch = result.epoch
                if result.assignment is not None:
                    names = {topic_id(name): name for name in TOPICS}
                    client.wanted = {
                        (names[one], p) for one in result.assignment for p in result.assignment[one]
                    }
            case GroupError.UNRELEASED_INSTANCE_ID | GroupError.FENCED_INSTANCE_ID:
                self.clients.remove(client)
            case error if error in REJOIN:
                self.give_up(client)
            case other:
                raise AssertionError(other)

    def give_up(self, client: Client) -> None:
        self.late += [(client.member_id, client.epoch, one) for one in sorted(client.owned)]
        client.begin()

    @rule(topics=st.sets(st.sampled_from(TOPICS), min_size=1), is_static=st.booleans())
    def join(self, topics: set[str], is_static: bool) -> None:
        if len(self.clients) < 4:
            self.number += 1
            instance_id = f"i{self.number}" if is_static else None
            self.clients.append(Client(self.number, instance_id, tuple(sorted(topics))))
            self.send(self.clients[-1])

    @precondition(lambda self: isinstance(self.groups.coordinator.find("g"), ConsumerGroup) and self.clients)
    @rule(topics=st.sets(st.sampled_from(TOPICS), min_size=1))
    def join_as_classic(self, topics: set[str]) -> None:
        group = self.group()
        if len(self.clients) < 4 and group is not None and group.members:
            self.number += 1
            self.clients.append(Client(self.number, None, tuple(sorted(topics)), is_classic=True))
            self.send(self.clients[-1])

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), heard=st.booleans(), full=st.booleans())
    def heartbeat(self, data: st.DataObject, heard: bool, full: bool) -> None:
        self.send(data.draw(st.sampled_from(self.clients)), heard=heard, full=full)

    @rule(data=st.data(), rounds=st.integers(1, 3))
    def go_round(self, data: st.DataObject, rounds: int) -> None:
        """Clients are heard, and do what they hear, but for one whose callbacks take their time."""
        busy = data.draw(st.sampled_from([None, *self.clients]))
        for _ in range(rounds):
            self.groups.advance(1.5)
            for client in list(self.clients):
                self.send(client)
                if client is not busy:
                    client.owned = set(client.wanted)
            self.no_partition_has_two_owners()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def rebalance(self, data: st.DataObject) -> None:
        """A client's callbacks run: it gives back what it is not to have, and takes what it is to have."""
        client = data.draw(st.sampled_from(self.clients))
        client.owned = set(client.wanted)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), topics=st.sets(st.sampled_from(TOPICS), min_size=1))
    def subscribe(self, data: st.DataObject, topics: set[str]) -> None:
        client = data.draw(st.sampled_from(self.clients))
        client.topics = tuple(sorted(topics))
        self.send(client, full=True)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), says_so=st.booleans())
    def leave(self, data: st.DataObject, says_so: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        if says_so and client.epoch > 0 and client.is_classic:
            self.groups.leave(client.member_id)
        elif says_so and client.epoch > 0:
            self.groups.beat(client.member_id, -1, instance_id=client.instance_id)

    @precondition(lambda self: any(one.instance_id and one.epoch > 0 for one in self.clients))
    @rule(data=st.data())
    def leave_for_now(self, data: st.DataObject) -> None:
        """A static member goes, and its next incarnation comes with another id."""
        client = data.draw(
            st.sampled_from([one for one in self.clients if one.instance_id and one.epoch > 0])
        )
        result = self.groups.beat(client.member_id, -2, instance_id=client.instance_id)
        self.clients.remove(client)
        if result.error is GroupError.NONE:
            self.number += 1
            self.clients.append(Client(self.number, client.instance_id, client.topics))

    # --- what happens around them ------------------------------------------------------------------------------------

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(1, 6))
    def grow_topic(self, topic: str, count: int) -> None:
        partitions = self.groups.catalogue.partitions
        partitions[topic] = max(count, partitions.get(topic, 0))

    @precondition(lambda self: self.number > 2)
    @rule(topic=st.sampled_from(TOPICS))
    def delete_topic(self, topic: str) -> None:
        self.groups.catalogue.partitions.pop(topic, None)

    @rule(seconds=st.sampled_from([0.5, 1.5, 20.0, 50.0]))
    def wait(self, seconds: float) -> None:
        self.groups.advance(seconds)

    @rule()
    def restart(self) -> None:
        for client in self.clients:
            self.late += [(client.member_id, client.epoch, one) for one in sorted(client.owned)]
        self.groups.restart()

    # --- what must be so ---------------------------------------------------------------------------------------------

    def group(self) -> ConsumerGroup | None:
        found = self.groups.coordinator.find("g")
        assert found is None or isinstance(found, ConsumerGroup)
        return found

    def known(self, client: Client) -> bool:
        group = self.group()
        member = None if group is None else group.members.get(client.member_id)
        return member is not None and client.epoch > 0 and member.epoch >= client.epoch

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owners: dict[Partition, Client] = {}
        for client in getattr(self, "clients", ()):
            if self.known(client):
                for partition in client.owned:
                    assert partition not in owners, (partition, client, owners[partition])
                    owners[partition] = client

    @invariant()
    def epochs_grow(self) -> None:
        group = self.group() if hasattr(self, "groups") else None
        if group is None:
            self.epoch = 0  # an empty group without offsets was forgotten: the next one is another
        else:
            assert group.epoch >= self.epoch, (group.epoch, self.epoch)
            assert all(one.epoch <= group.assignment_epoch <= group.epoch for one in group.members.values())
            self.epoch = group.epoch

    @invariant()
    def books_add_up(self) -> None:
        group = self.group() if hasattr(self, "groups") else None
        if group is not None:
            held = {
                (topic, partition): one.member_id
                for one in group.members.values()
                for parts in (one.assigned, one.revoking)
                for topic in parts
                for partition in parts[topic]
            }
            by_topic = {(t, p): name for t, parts in group.holders.items() for p, name in parts.items()}
            assert held == by_topic

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        alive = sorted(one for one in client.owned if self.groups.catalogue.exists(*one))
        if not alive:
            return
        topic, partition = data.draw(st.sampled_from(alive))
        known = self.known(client)
        (error,) = self.groups.commit(
            OffsetToCommit(topic, partition, 1),
            member_id=client.member_id,
            generation=client.epoch,
            knows_epochs=not client.is_classic,
        )
        if known and (topic, partition) in client.wanted:
            # A classic member whose last answer was lost is to join again before it commits.
            assert error is GroupError.NONE or (client.is_classic and error is GroupError.ILLEGAL_GENERATION)
        if not known:
            refusals = (*REJOIN, GroupError.ILLEGAL_GENERATION, GroupError.STALE_MEMBER_EPOCH)
            assert error in refusals, error

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def commit_late(self, data: st.DataObject) -> None:
        member_id, epoch, (topic, partition) = data.draw(st.sampled_from(self.late))
        if self.groups.catalogue.exists(topic, partition) and epoch:
            group = self.group()
            member = None if group is None else group.members.get(member_id)
            (error,) = self.groups.commit(
                OffsetToCommit(topic, partition, 7), member_id=member_id, generation=epoch
            )
            # Where the server has still got the member it is that member's own.
            assert error is not GroupError.NONE or (member is not None and member.epoch == epoch)

    @rule()
    def settle(self) -> None:
        """Everybody behaves for as long as sessions and intervals take."""
        if self.clients and all(one.is_classic for one in self.clients):
            self.number += 1
            self.clients.append(Client(self.number, None, ("t",)))
        for _ in range(15):
            self.groups.advance(5.0)
            self.epochs_grow()
            for client in list(self.clients):
                self.send(client)
                client.owned = set(client.wanted)
        group = self.group()
        if group is None or not self.clients:
            assert group is None or group.state is GroupState.EMPTY, group.state
            return
        assert group.state is GroupState.STABLE, (group.state, self.clients)
        counts = self.groups.catalogue.partitions
        wanted = {topic for client in self.clients for topic in client.topics if topic in counts}
        every = sorted((topic, partition) for topic in wanted for partition in range(counts[topic]))
        assert sorted(one for client in self.clients for one in client.owned) == every
        assert all(topic in client.topics for client in self.clients for topic, _ in client.owned)


ConsumerGroups.TestCase.settings = settings(max_examples=at_least(250), stateful_step_count=50)
TestConsumerGroups = ConsumerGroups.TestCase
