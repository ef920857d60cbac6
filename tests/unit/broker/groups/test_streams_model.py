"""Streams groups under random members, topics, losses and restarts: a model of which tasks clients have.

Clients behave as their protocol says: they give back what is no longer assigned before they report it, take what is
assigned, and begin anew when they are fenced.  Several of them may be threads of one process.  Answers get lost,
members fall silent, servers restart, topics come and go.  At all times

* no two members that the server knows have one active task;
* no two members of one process have one task, in whichever role: they would share the folder of its state;
* epochs of groups and members only grow, also over restarts;
* who has an active task can commit for it; who the server has given up cannot.

When all behave for a while and all topics are there, the group is Stable, each task is active at one member, and has as
many standbys at other processes as were asked for.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import (
    GroupState,
    InternalTopic,
    OffsetToCommit,
    StreamsHeartbeatResult,
    StreamsStatus,
    Subtopology,
    Task,
    Tasks,
    Topology,
)
from magnetar.broker.groups.settings import GroupSettings
from magnetar.broker.groups.streams.group import StreamsGroup
from magnetar.broker.policy.model import AlterOperation, ConfigChange
from magnetar.testing.groups import GroupDriver
from tests.examples import at_least

TOPOLOGY = Topology(
    0,
    (
        Subtopology("0", ("t", "u"), sinks=("moved",)),
        Subtopology("1", repartitions=(InternalTopic("moved"),), changelogs=(InternalTopic("store"),)),
    ),
)
REJOIN = (GroupError.FENCED_MEMBER_EPOCH, GroupError.UNKNOWN_MEMBER_ID, GroupError.GROUP_ID_NOT_FOUND)
NONE = Tasks()


class Client:
    """One thread of the application; `wanted` is what the server has said that it is to have, as far as it knows."""

    def __init__(self, number: int, process_id: str) -> None:
        self.member_id = f"m{number}"
        self.process_id = process_id
        self.begin()

    def begin(self) -> None:
        self.epoch = 0
        self.has = NONE
        self.wanted = NONE
        self.told: Tasks | None = None  # what it has said that it has, and the server has heard

    def __repr__(self) -> str:
        return f"{self.member_id}@{self.epoch} of {self.process_id}: {self.has}"


class StreamsGroups(RuleBasedStateMachine):
    @initialize(delay=st.sampled_from([0, 3_000]), standbys=st.integers(0, 2))
    def begin(self, delay: int, standbys: int) -> None:
        self.groups = GroupDriver(
            GroupSettings(
                group_streams_initial_rebalance_delay_ms=delay, group_streams_num_standby_replicas=standbys
            )
        )
        self.standbys = standbys
        self.groups.catalogue.partitions = {"t": 3, "u": 2}
        self.clients: list[Client] = []
        self.number = 0
        self.epoch = 0  # the highest that was seen

    def teardown(self) -> None:
        if hasattr(self, "groups"):
            with self.groups:
                pass

    # --- what clients do ---------------------------------------------------------------------------------------------

    def send(self, client: Client, *, heard: bool = True, full: bool = False) -> None:
        joins = client.epoch == 0
        # While it is busy with what it was told, it says nothing of its tasks.
        says = full or (client.has == client.wanted and client.has != client.told)
        has = client.has if says and not joins else None
        result = self.groups.stream(
            client.member_id,
            client.epoch,
            TOPOLOGY if joins else None,
            active=None if has is None else has.active,
            standby=() if has is None else has.standby,
            process_id=client.process_id if joins or full else None,
        )
        client.told = client.has if heard else None
        if heard:
            self.hear(client, result)

    def hear(self, client: Client, result: StreamsHeartbeatResult) -> None:
        if result.error in REJOIN:
            client.begin()
            return
        if result.error is GroupError.INVALID_REQUEST and "Task" in result.message:
            client.begin()  # its tasks are of a topic that is another one by now
            return
        assert result.error is GroupError.NONE, result
        assert result.epoch >= client.epoch, (client, result)
        client.epoch = result.epoch
        if result.tasks is not None:
            client.wanted = result.tasks
        if result.missing:
            assert StreamsStatus.MISSING_INTERNAL_TOPICS in dict(result.statuses)
            for topic in result.missing:
                self.groups.catalogue.partitions.setdefault(topic.name, topic.partitions)

    @staticmethod
    def act(client: Client) -> None:
        """It gives back what it is not to have, and takes what it is to have."""
        client.has = client.wanted

    @rule(process=st.sampled_from("pqr"))
    def join(self, process: str) -> None:
        if len(self.clients) < 5:
            self.number += 1
            self.clients.append(Client(self.number, process))
            self.send(self.clients[-1])

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), heard=st.booleans(), full=st.booleans())
    def heartbeat(self, data: st.DataObject, heard: bool, full: bool) -> None:
        self.send(data.draw(st.sampled_from(self.clients)), heard=heard, full=full)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def rebalance(self, data: st.DataObject) -> None:
        self.act(data.draw(st.sampled_from(self.clients)))

    @rule(data=st.data(), rounds=st.integers(1, 3))
    def go_round(self, data: st.DataObject, rounds: int) -> None:
        """Clients are heard, and do what they hear, but for one that takes its time."""
        busy = data.draw(st.sampled_from([None, *self.clients]))
        for _ in range(rounds):
            self.groups.advance(1.5)
            for client in list(self.clients):
                self.send(client)
                if client is not busy:
                    self.act(client)
            self.no_task_has_two_owners()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), says_so=st.booleans())
    def leave(self, data: st.DataObject, says_so: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        if says_so and client.epoch > 0:
            self.groups.stream(client.member_id, -1)

    # --- what happens around them ------------------------------------------------------------------------------------

    @rule(topic=st.sampled_from("tu"), count=st.integers(1, 5))
    def change_topic(self, topic: str, count: int) -> None:
        """A source grows, or is deleted and made anew; internal topics are made anew with it."""
        partitions = self.groups.catalogue.partitions
        for name in ("moved", "store"):
            partitions.pop(name, None)
        partitions[topic] = count

    @rule(topic=st.sampled_from(["t", "moved", "store"]))
    def delete_topic(self, topic: str) -> None:
        self.groups.catalogue.partitions.pop(topic, None)

    @rule(standbys=st.integers(0, 2))
    def set_standbys(self, standbys: int) -> None:
        configs = self.groups.coordinator.configs
        change = ConfigChange("streams.num.standby.replicas", AlterOperation.SET, str(standbys))
        self.groups.wait(configs.change("g", configs.after("g", [change])))
        self.standbys = standbys

    @rule(seconds=st.sampled_from([0.5, 1.5, 20.0, 50.0]))
    def wait(self, seconds: float) -> None:
        self.groups.advance(seconds)

    @rule()
    def restart(self) -> None:
        self.groups.restart()

    # --- what must be so ---------------------------------------------------------------------------------------------

    def group(self) -> StreamsGroup | None:
        found = self.groups.coordinator.find("g") if hasattr(self, "groups") else None
        assert found is None or isinstance(found, StreamsGroup)
        return found

    def known(self, client: Client) -> bool:
        group = self.group()
        member = None if group is None else group.members.get(client.member_id)
        return member is not None and client.epoch > 0 and member.epoch >= client.epoch

    @invariant()
    def no_task_has_two_owners(self) -> None:
        active: dict[Task, Client] = {}
        local: dict[tuple[str, Task], Client] = {}
        for client in getattr(self, "clients", ()):
            if not self.known(client):
                continue
            for task in client.has.active:
                assert task not in active, (task, client, active[task])
                active[task] = client
            for task in (*client.has.active, *client.has.standby):
                other = local.setdefault((client.process_id, task), client)
                assert other is client, (task, client, other)

    @invariant()
    def epochs_grow(self) -> None:
        group = self.group()
        if group is None:
            self.epoch = 0
        else:
            assert group.epoch >= self.epoch, (group.epoch, self.epoch)
            assert all(one.epoch <= group.assignment_epoch <= group.epoch for one in group.members.values())
            self.epoch = group.epoch

    @invariant()
    def books_add_up(self) -> None:
        group = self.group()
        if group is None:
            return
        active: dict[Task, str] = {}
        standby: set[tuple[Task, str]] = set()
        for member in group.members.values():
            for held in (member.assigned, member.revoking):
                active |= dict.fromkeys(held.active, member.member_id)
                standby |= {(task, member.member_id) for task in held.standby}
        assert active == {task: member.member_id for task, member in group.active.items()}
        assert standby == {(task, one.member_id) for task, ones in group.standby.items() for one in ones}

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        tasks = sorted(
            task
            for task in client.has.active
            if task[0] == "0" and self.groups.catalogue.exists("t", task[1])
        )
        if not tasks:
            return
        task = data.draw(st.sampled_from(tasks))
        (error,) = self.groups.commit(
            OffsetToCommit("t", task[1], 1), member_id=client.member_id, generation=client.epoch
        )
        if self.known(client) and task in client.wanted.active:
            assert error is GroupError.NONE
        if not self.known(client):
            assert error in (*REJOIN, GroupError.STALE_MEMBER_EPOCH), error

    @rule()
    def settle(self) -> None:
        """Everybody behaves for as long as sessions and intervals take, and the sources are there."""
        partitions = self.groups.catalogue.partitions
        partitions.setdefault("t", 3)
        partitions.setdefault("u", 2)
        count = max(partitions["t"], partitions["u"])
        for name in ("moved", "store"):
            if partitions.get(name, count) != count:
                del partitions[name]
        for _ in range(20):
            self.groups.advance(5.0)
            self.epochs_grow()
            for client in list(self.clients):
                self.send(client)
                self.act(client)
        group = self.group()
        if group is None or not self.clients:
            assert group is None or group.state is GroupState.EMPTY, group.state
            return
        assert group.state is GroupState.STABLE, (group.state, self.clients, partitions)
        every = sorted((part, index) for part in "01" for index in range(count))
        assert sorted(task for client in self.clients for task in client.has.active) == every
        processes = {client.process_id for client in self.clients}
        for task in every:
            standbys = [client for client in self.clients if task in client.has.standby]
            wanted = min(self.standbys, len(processes) - 1) if task[0] == "1" else 0
            assert len(standbys) == wanted, (task, standbys)


StreamsGroups.TestCase.settings = settings(max_examples=at_least(250), stateful_step_count=50)
TestStreamsGroups = StreamsGroups.TestCase
