"""Groups under random members: joining, leaving, dying, coming back, changing their minds; seeded.

Members are small state machines that behave as clients do; some answers and requests of theirs are lost with them.
After every step and at the end:

* no member hangs: every request of a member is answered within the longest time that any rule allows;
* a member that believes in the group's generation and that the group knows has the assignment of that generation;
* all assignments of a generation were made by one leader, for members of that generation;
* generations only grow;
* when the members behave for a while, the group is Stable, and all of them are in it.
"""

import random
from functools import partial

import pytest

from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.group import Group
from magnetar.broker.groups.model import GroupState, JoinRequest, JoinResult, SyncRequest, SyncResult
from magnetar.broker.groups.settings import NEW_MEMBER_JOIN_TIMEOUT_MS
from magnetar.testing.groups import GroupDriver, subscription, viewer

STEP_S = 0.5
SESSION_MS = 6_000
REBALANCE_MS = 10_000
# A join is answered when the rebalance ends: after members who never sync are thrown out, and once more after others
# are given up, each in the time of a rebalance, or when static members' sessions end; a new one after five minutes.
ANSWER_S_MAX = 4 * (REBALANCE_MS + SESSION_MS) / 1000
NEW_MEMBER_S = NEW_MEMBER_JOIN_TIMEOUT_MS / 1000


class Client:
    """A consumer.  `dead` clients say nothing any more, and what they are still answered is lost."""

    def __init__(self, simulation: "Simulation", instance_id: str | None) -> None:
        self.simulation = simulation
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.assignment: bytes | None = None  # of `generation`
        self.unanswered: dict[int, float] = {}  # request number -> when it was sent
        self.last_request = 0
        self.dead = False
        self.topics = "t"

    @property
    def waits(self) -> bool:
        return self.last_request in self.unanswered

    def send(self) -> int:
        self.last_request += 1
        self.unanswered[self.last_request] = self.simulation.now
        return self.last_request

    def hears(self, number: int) -> bool:
        """Whether the answer reaches the client: it listens to its last request only."""
        del self.unanswered[number]
        return not self.dead and number == self.last_request

    def send_join(self) -> None:
        self.assignment = None
        number = self.send()
        request = JoinRequest(
            "g",
            self.member_id,
            "consumer",
            (("range", subscription(self.topics)),),
            SESSION_MS,
            REBALANCE_MS,
            "client",
            "/host",
            self.instance_id,
            viewer=viewer(),
        )
        self.simulation.groups.call(
            self.simulation.groups.coordinator.join, request, partial(self.joined, number)
        )

    def joined(self, number: int, result: JoinResult) -> None:
        if not self.hears(number):
            return
        match result.error:
            case GroupError.NONE:
                self.member_id, self.generation = result.member_id, result.generation
                self.simulation.saw_generation(result)
                assignments = {
                    member.member_id: f"{result.generation}:{member.member_id}".encode()
                    for member in result.members
                }
                leads = result.leader == result.member_id and not result.skip_assignment
                self.simulation.later.append(
                    (self.send_sync, result.generation, assignments if leads else {})
                )
            case GroupError.MEMBER_ID_REQUIRED:
                self.member_id = result.member_id
                self.simulation.later.append((self.send_join,))
            case GroupError.UNKNOWN_MEMBER_ID:
                self.forget()
            case GroupError.REBALANCE_IN_PROGRESS:
                self.simulation.later.append((self.send_join,))
            case GroupError.FENCED_INSTANCE_ID:
                self.dead = True
            case other:
                raise AssertionError(other)

    def send_sync(self, generation: int, assignments: dict[str, bytes]) -> None:
        if generation != self.generation:
            return  # it has joined another one since
        number = self.send()
        request = SyncRequest(
            "g", self.member_id, self.generation, assignments, self.instance_id, "consumer", "range"
        )
        self.simulation.groups.call(
            self.simulation.groups.coordinator.sync, request, partial(self.synced, number)
        )

    def synced(self, number: int, result: SyncResult) -> None:
        if not self.hears(number):
            return
        if result.error is GroupError.NONE:
            self.assignment = result.assignment
        else:
            self.failed(result.error)

    def heartbeat(self) -> None:
        error = self.simulation.groups.call(
            self.simulation.groups.coordinator.heartbeat,
            "g",
            self.member_id,
            self.generation,
            self.instance_id,
        )
        if error is not GroupError.NONE:
            self.failed(error)

    def failed(self, error: GroupError) -> None:
        match error:
            case GroupError.UNKNOWN_MEMBER_ID | GroupError.ILLEGAL_GENERATION:
                self.forget()
            case GroupError.REBALANCE_IN_PROGRESS:
                self.simulation.later.append((self.send_join,))
            case GroupError.FENCED_INSTANCE_ID:
                self.dead = True
            case other:
                raise AssertionError(other)

    def forget(self) -> None:
        self.member_id, self.generation, self.assignment = "", -1, None
        self.simulation.later.append((self.send_join,))


class Simulation:
    def __init__(self, groups: GroupDriver, seed: int) -> None:
        self.groups = groups
        self.random = random.Random(seed)
        self.clients: list[Client] = []
        self.later: list[tuple] = []  # type: ignore[type-arg]  # calls and their arguments, for the next step
        self.now = 0.0
        self.generation = 0
        self.leaders: dict[int, str] = {}

    def saw_generation(self, result: JoinResult) -> None:
        if result.members and not result.skip_assignment:
            assert self.leaders.setdefault(result.generation, result.member_id) == result.member_id

    def start_client(self, instance_id: str | None = None) -> None:
        client = Client(self, instance_id)
        self.clients.append(client)
        client.send_join()

    def disturb(self) -> None:
        alive = [client for client in self.clients if not client.dead]
        choice = self.random.random()
        if choice < 0.06 and len(alive) < 8:
            self.start_client()
        elif choice < 0.10:
            self.start_client(f"static-{self.random.randrange(3)}")  # often a second incarnation
        elif alive and choice < 0.14:
            self.random.choice(alive).dead = True
        elif alive and choice < 0.17:
            leaver = self.random.choice(alive)
            leaver.dead = True
            self.groups.leave(leaver.member_id)
        elif alive and choice < 0.20:
            changed = self.random.choice(alive)
            changed.topics = self.random.choice("tuv")
            if not changed.waits:
                changed.send_join()
        elif alive and choice < 0.23:
            retried = self.random.choice(alive)
            if retried.waits and retried.member_id:
                retried.send_join()  # it gave up on the connection

    def step(self, *, disturbed: bool) -> None:
        calls, self.later = self.later, []
        self.random.shuffle(calls)
        for call, *arguments in calls:
            if not call.__self__.dead:
                call(*arguments)
        for client in self.clients:
            idle = not client.waits and client.assignment is not None
            if not client.dead and idle and (self.random.random() < 0.4 or not disturbed):
                client.heartbeat()
        if disturbed:
            self.disturb()
        self.groups.advance(STEP_S)
        self.now += STEP_S
        self.check()

    def check(self) -> None:
        for client in self.clients:
            for sent in client.unanswered.values():
                assert self.now - sent <= (NEW_MEMBER_S if client.dead else ANSWER_S_MAX), client.member_id
        group = self.groups.coordinator.find("g")
        assert group is None or isinstance(group, Group)
        if group is None:
            return
        assert group.generation >= self.generation
        self.generation = group.generation
        assert group.leader is None or group.leader in group.members
        for client in self.clients:
            member = group.members.get(client.member_id)
            if client.dead or member is None or client.assignment is None:
                continue
            if group.state is GroupState.STABLE and client.generation == group.generation:
                assert client.assignment == member.assignment
                made_in, _, made_for = client.assignment.decode().partition(":")
                assert int(made_in) == group.generation
                # A static member keeps what was made for the incarnation before it.
                assert made_for == client.member_id or client.instance_id is not None


@pytest.mark.parametrize("seed", range(30))
def test_random_members_never_hang_and_settle_when_left_alone(seed: int) -> None:
    with GroupDriver() as groups:
        simulation = Simulation(groups, seed)
        for _ in range(3):
            simulation.start_client()
        for _ in range(400):
            simulation.step(disturbed=True)
        for _ in range(int(3 * ANSWER_S_MAX / STEP_S)):
            simulation.step(disturbed=False)
        alive = {client.member_id: client for client in simulation.clients if not client.dead}
        described = groups.coordinator.describe("g")
        assert {member.member_id for member in described.members} == set(alive)
        assert described.state is (GroupState.STABLE if alive else GroupState.EMPTY)
        assert all(client.assignment is not None for client in alive.values())
        assert simulation.generation > 5  # it was not a quiet life
