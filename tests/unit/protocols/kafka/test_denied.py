"""Every API and the rights that it asks for: the answer to a client without them, and that nothing changes then.

`tests/authorization/kafka.txt` holds what each API asks.  An API that stands in neither of the tables of
`authorized_requests.py` fails.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any, Final

import pytest

from magnetar.base.names import TopicName
from magnetar.base.settings_authorization import AuthorizationSettings
from magnetar.base.settings_delegation import DelegationTokenSettings
from magnetar.broker.groups.model import CommitRequest, OffsetToCommit
from magnetar.broker.security.model import Caller, Operation, Principal, Resource, ResourceType
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.topics.roots import SNAPSHOTS_ROOT
from magnetar.broker.transactions.model import Producer
from magnetar.protocols.kafka.apis import load_apis
from magnetar.protocols.kafka.session import KafkaSession
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.header import encode_request_header
from magnetar.wire.kafka.messages import produce
from magnetar.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from magnetar.wire.kafka.messages.asking import produce as ask_produce
from magnetar.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from magnetar.wire.kafka.messages.describe_cluster import DescribeClusterRequest
from magnetar.wire.kafka.messages.describe_groups import DescribeGroupsRequest
from magnetar.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests import written_rights
from tests.unit.protocols.kafka.authorized_kinds import (
    DENIED_CODES,
    GROUP,
    TOPIC,
    TOPIC_DENIED,
    TXN,
    Kind,
    Names,
    Right,
    codes,
    listed,
)
from tests.unit.protocols.kafka.authorized_requests import ASKS_NOTHING, KINDS
from tests.unit.protocols.kafka.conftest import record_batch

Run = Callable[..., None]
GOLDEN: Final = written_rights.FOLDER / "kafka.txt"
ANN, BOB = Principal("User", "ann"), Principal("User", "bob")
TOKENS: Final = DelegationTokenSettings("hunter2")
FULL: Final = "persistent://public/default/t"
# What producers, consumers and members do all the time: only a refusal of it is in the audit log.
UNRECORDED: Final = frozenset(
    ("consumer_group_heartbeat", "init_producer_id", "produce", "share_group_heartbeat")
)
ALL_BITS: Final = {
    "cluster": sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12)),
    "topic": sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11)),
    "group": sum(1 << bit for bit in (3, 6, 8, 10, 11)),
}


class Rules:
    """An authorizer that notes what it is asked, and denies some rights, or those to one topic."""

    tells_hosts_apart = False

    def __init__(self) -> None:
        self.denied: Collection[Right] = ()
        self.denied_topic = ""
        self.asked: list[tuple[Operation, Resource]] = []
        self.asked_any: list[Right] = []

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        assert caller.host == "127.0.0.1"
        self.asked.append((operation, resource))
        if resource.type is TOPIC and resource.name == self.denied_topic:
            return False
        return (operation, resource.type) not in self.denied

    def allows_any(self, caller: Caller, operation: Operation, kind: ResourceType) -> bool:
        self.asked_any.append((operation, kind))
        return (operation, kind) not in self.denied

    def clear(self) -> None:
        self.denied, self.denied_topic = (), ""
        self.asked.clear()
        self.asked_any.clear()

    def rights(self) -> set[Right]:
        return {(operation, resource.type) for operation, resource in self.asked} | set(self.asked_any)

    def questions(self) -> set[str]:
        found = {f"{operation.name} {resource.type.value}" for operation, resource in self.asked}
        return found | {f"{operation.name} any {kind.value}" for operation, kind in self.asked_any}


async def furnished(client: Any) -> Names:
    """A topic with records, a group with offsets in it, a transactional id with an open transaction over both, and
    delegation tokens of two users: ann, one of them, is the client from now on.
    """
    broker = client.broker
    client.caller = Caller(ANN, "127.0.0.1")
    await client.make_token(BOB)
    name = TopicName.parse(FULL)
    if broker.topics.find(name) is None:
        await broker.topics.create([broker.topics.plan(NewTopic(name, 1))])
    topic = broker.topics.get(name)
    await client.append(topic.partition(0), 3)
    await broker.groups.offsets.commit(CommitRequest("g", [OffsetToCommit(FULL, 0, 1)]))
    initialised = await broker.transactions.init_producer("x", 60_000)
    producer = Producer(initialised.producer_id, initialised.epoch)
    await broker.transactions.add_partitions("x", producer, [(FULL, 0)])
    await broker.transactions.add_group("x", producer, "g")
    batch = bytes(record_batch(1, broker.clock.now_ms()))
    data_dir, token_hmac = broker.settings.data_dir, (await client.make_token(ANN)).hmac
    return Names("t", topic.topic_id, "g", "x", producer.producer_id, data_dir, batch, token_hmac)


def missing(names: Names, rights: Collection[Right]) -> Names:
    """The same, about things that there are not where these rights are to things of their kind."""
    kinds = {kind for _, kind in rights}
    return names._replace(
        topic="nowhere" if TOPIC in kinds else names.topic,
        group="nobody" if GROUP in kinds else names.group,
        transactional_id="nothing" if TXN in kinds else names.transactional_id,
    )


async def everything(client: Any) -> dict[str, Any]:
    """All that a request could change."""
    broker = client.broker
    partitions = [partition for topic in broker.topics for partition in topic.open_partitions]
    groups = [broker.groups.describe(name) for name in broker.groups.names()]
    stored = await client.metadata.scan("/")
    return {
        # Snapshots of producers are the server's own: it takes them every few seconds, whatever is asked meanwhile.
        "stored": [
            (path, one.version, one.value) for path, one in stored if not path.startswith(SNAPSHOTS_ROOT)
        ],
        "topics": sorted(
            (topic.name.full, topic.partition_count, topic.overrides) for topic in broker.topics
        ),
        "logs": [(one.log.name, one.log.log_start, one.log.next_offset) for one in partitions],
        "groups": [(group.group_id, group.state, group.members) for group in groups],
        "transactions": broker.transactions.listed(),
        "levels": {name: logging.getLogger(name).level for name in logging.root.manager.loggerDict},
    }


def check_refusals(client: Any, rules: Rules, *, is_refused: bool) -> None:
    """The audit log has who was refused what, once each, and nothing else."""
    lines = client.audit.take()
    assert bool(lines) is is_refused
    said = [(line["operation"], line["resource_type"], line["resource"]) for line in lines]
    assert len(said) == len(set(said))
    assert {*said} <= {
        (operation.name, resource.type.value, resource.name)
        for operation, resource in rules.asked
        if (operation, resource.type) in rules.denied
    }
    for line in lines:
        assert (line["event"], line["result"]) == ("refusal", "refused")
        assert (line["principal"], line["host"]) == (str(ANN), "127.0.0.1")


def test_each_api_asks_or_has_a_reason_not_to() -> None:
    asking = {kind.api for kind in KINDS}
    assert not asking & ASKS_NOTHING.keys()
    assert {api.name for api in load_apis().values()} == asking | ASKS_NOTHING.keys()


@pytest.mark.parametrize("kind", [one for one in KINDS if one.refusals], ids=lambda kind: kind.label)
def test_a_denied_client_is_told_so_and_nothing_changes(with_broker: Run, kind: Kind) -> None:
    """What is there and what is not are denied alike; an id of nothing is none, whichever client asks."""
    rules = Rules()

    async def scenario(client: Any) -> None:
        names = await furnished(client)
        before = await everything(client)

        async def denied(rights: Collection[Right], about: Names) -> Any:
            rules.denied = rights
            client.audit.take()
            rules.asked.clear()
            response = await client.ask(kind.api, kind.version, kind.request(about))
            assert await everything(client) == before, (rights, about)
            check_refusals(client, rules, is_refused=bool({*codes(response)} & DENIED_CODES))
            return response

        for rights, expected in kind.refusals.items():
            for about in [names] if kind.note == "by id" else [names, missing(names, rights)]:
                response = await denied(rights, about)
                assert list(codes(response)) == expected, (rights, about)
                if not any(expected) or kind.api.startswith("list_config"):
                    assert not listed(response), rights
        for about in [names] if kind.note == "by id" else [names, missing(names, kind.rights)]:
            assert list(codes(await denied(kind.rights, about))) in kind.refusals.values()

    with_broker(scenario, authorizer=rules, delegation_tokens=TOKENS)


def test_what_each_api_asks_is_written_down(with_broker: Run) -> None:
    rules = Rules()
    lines = dict.fromkeys(ASKS_NOTHING, "nothing")

    async def scenario(client: Any) -> None:
        asked: dict[str, set[str]] = {}
        changes: dict[str, set[str]] = {}
        unrecorded: set[str] = set()
        for kind in KINDS:
            names = await furnished(client)
            rights: set[Right] = set()
            for denied in (*kind.refusals, *({right} for right in kind.rights), frozenset()):
                rules.clear()
                rules.denied = denied
                about = missing(names, kind.rights) if kind.api == "create_topics" else names
                client.audit.take()
                before = await everything(client)
                await client.ask(kind.api, kind.version, kind.request(about))
                recorded = {line["operation"] for line in client.audit.take() if line["event"] == "change"}
                changes.setdefault(kind.api, set()).update(recorded)
                if not recorded and await everything(client) != before:
                    unrecorded.add(kind.api)
                rights |= rules.rights()
                asked.setdefault(kind.api, set()).update(rules.questions())
            assert rights == kind.rights, f"{kind.label} is denied for what it asks"
            rules.clear()
            # What a share consumer stands on is asked again whenever a later kind changes rights.
            client.broker.cases.sharing.connection_lost(client.connection_id)
        assert unrecorded == UNRECORDED, "what changes the state has a line in the audit log, or stands here"
        lines.update({api: ", ".join(sorted(questions)) or "nothing" for api, questions in asked.items()})
        lines.update({api: f"{lines[api]} > {', '.join(sorted(one))}" for api, one in changes.items() if one})

    # There is a book of rules, which the authorizer is asked instead of.
    book = AuthorizationSettings(frozenset())
    with_broker(scenario, authorizer=rules, authorization=book, delegation_tokens=TOKENS)
    written_rights.check([f"{api}: {lines[api]}\n" for api in sorted(lines)], GOLDEN)


@pytest.mark.parametrize("api", ASKS_NOTHING)
def test_what_asks_nothing_is_answered_and_changes_nothing(with_broker: Run, api: str) -> None:
    rules = Rules()
    version, request, _ = ASKS_NOTHING[api]

    async def scenario(client: Any) -> None:
        before = await everything(client)
        found = set(codes(await client.ask(api, version, request)))
        assert found <= {ErrorCode.NONE, ErrorCode.ILLEGAL_SASL_STATE}
        assert not rules.asked
        assert await everything(client) == before

    with_broker(scenario, authorizer=rules)


# --- what a refusal shows, and what not ------------------------------------------------------------------------------


def test_operations_that_are_shown_are_those_that_the_caller_has(with_broker: Run) -> None:
    rules = Rules()

    async def scenario(client: Any) -> None:
        await furnished(client)

        async def bits() -> dict[str, int]:
            cluster = await client.ask("describe_cluster", 1, DescribeClusterRequest(True))
            topics = MetadataRequest([MetadataRequestTopic(name="t")], False, True, True)
            metadata = await client.ask("metadata", 10, topics)
            groups = await client.ask("describe_groups", 6, DescribeGroupsRequest(["g"], True))
            assert metadata.cluster_authorized_operations == cluster.cluster_authorized_operations
            return {
                "cluster": cluster.cluster_authorized_operations,
                "topic": metadata.topics[0].topic_authorized_operations,
                "group": groups.groups[0].authorized_operations,
            }

        assert await bits() == ALL_BITS
        rules.denied = {
            (Operation.ALTER, ResourceType.CLUSTER),
            (Operation.WRITE, ResourceType.TOPIC),
            (Operation.DELETE, ResourceType.SUBSCRIPTION),
        }
        assert await bits() == {
            "cluster": ALL_BITS["cluster"] - (1 << Operation.ALTER),
            "topic": ALL_BITS["topic"] - (1 << Operation.WRITE),
            "group": ALL_BITS["group"] - (1 << Operation.DELETE),
        }
        rules.denied = {(Operation.DESCRIBE, ResourceType.CLUSTER)}
        assert (await bits())["cluster"] == 0

    with_broker(scenario, authorizer=rules)


def test_one_topic_that_is_denied_keeps_the_others_out_of_a_transaction(with_broker: Run) -> None:
    rules = Rules()

    async def scenario(client: Any) -> None:
        names = await furnished(client)
        before = await everything(client)
        rules.denied_topic = "persistent://public/default/secret"
        topics = [AddPartitionsToTxnTopic("t", [0]), AddPartitionsToTxnTopic("secret", [0])]
        request = AddPartitionsToTxnRequest([], "x", names.producer_id, 0, topics)
        assert list(codes(await client.ask("add_partitions_to_txn", 3, request))) == [0, 55, TOPIC_DENIED]
        assert await everything(client) == before

    with_broker(scenario, authorizer=rules)


def test_one_topic_that_is_denied_leaves_the_others_served(with_broker: Run) -> None:
    rules = Rules()

    async def scenario(client: Any) -> None:
        names = await furnished(client)
        rules.denied_topic = FULL
        both = MetadataRequest([MetadataRequestTopic(name="t"), MetadataRequestTopic(name="other")], True)
        answer = await client.ask("metadata", 12, both)
        assert {row.name: row.error_code for row in answer.topics} == {"t": TOPIC_DENIED, "other": 0}
        assert [row.topic_id for row in answer.topics if row.name == "t"] == [bytes(16)]
        every = await client.ask("metadata", 12, MetadataRequest(None))
        shown = {row.name for row in every.topics}
        assert "other" in shown
        assert "t" not in shown
        data = [
            TopicProduceData(name, partition_data=[PartitionProduceData(0, names.batch)])
            for name in ("t", "other")
        ]
        answer = await client.ask("produce", 9, ProduceRequest(None, -1, 1000, data))
        assert list(codes(answer)) == [TOPIC_DENIED, 0]

    with_broker(scenario, authorizer=rules)


def test_a_topic_that_is_named_by_its_id_keeps_its_name(with_broker: Run) -> None:
    rules = Rules()

    async def scenario(client: Any) -> None:
        names = await furnished(client)
        rules.denied_topic = FULL
        for kind in KINDS:
            if kind.note == "by id":
                # Some answers have room for the name that the client did not give.
                answer = await client.ask(kind.api, kind.version, kind.request(names._replace(topic="")))
                assert TOPIC_DENIED in list(codes(answer)), kind.label
                assert "default/t" not in repr(answer), kind.label
                assert "'t'" not in repr(answer), kind.label

    with_broker(scenario, authorizer=rules)


def test_a_new_topic_has_settings_for_clients_that_may_describe_them(with_broker: Run) -> None:
    rules = Rules()

    async def scenario(client: Any) -> None:
        request = CreateTopicsRequest([CreatableTopic("new", 3, 1)], 1000)
        rules.denied = {(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)}
        (row,) = (await client.ask("create_topics", 7, request)).topics
        assert (row.error_code, row.topic_config_error_code) == (0, TOPIC_DENIED)
        assert (row.num_partitions, row.replication_factor, row.configs) == (-1, -1, [])
        assert client.broker.topics.get(TopicName.parse("new")).partition_count == 3

    with_broker(scenario, authorizer=rules)


def test_a_client_that_may_make_any_topic_needs_no_right_to_the_one(with_broker: Run) -> None:
    rules = Rules()

    async def scenario(client: Any) -> None:
        for name, cluster_or_topic in (("a", ResourceType.TOPIC), ("b", ResourceType.CLUSTER)):
            rules.denied = {(Operation.CREATE, cluster_or_topic)}
            request = CreateTopicsRequest([CreatableTopic(name, 1, 1)], 1000)
            assert list(codes(await client.ask("create_topics", 7, request))) == [0]

    with_broker(scenario, authorizer=rules)


def test_a_transaction_is_described_without_topics_that_are_denied(with_broker: Run) -> None:
    rules = Rules()
    (kind,) = (kind for kind in KINDS if kind.api == "describe_transactions")

    async def scenario(client: Any) -> None:
        names = await furnished(client)
        (state,) = (await client.ask(kind.api, kind.version, kind.request(names))).transaction_states
        assert [topic.topic for topic in state.topics] == ["t"]
        rules.denied_topic = FULL
        (state,) = (await client.ask(kind.api, kind.version, kind.request(names))).transaction_states
        assert (state.error_code, state.topics) == (0, [])

    with_broker(scenario, authorizer=rules)


# --- the hot paths ---------------------------------------------------------------------------------------------------


def fetch(width: int, **fields: Any) -> FetchRequest:
    partitions = [
        FetchPartition(index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(width)
    ]
    return FetchRequest(
        replica_id=-1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic("wide", partitions=partitions)],
        **fields,
    )


@pytest.mark.parametrize("denied", ["", "persistent://public/default/wide"])
def test_a_fetch_asks_once_for_each_topic_however_often_it_looks(with_broker: Run, denied: str) -> None:
    rules = Rules()

    async def scenario(client: Any) -> None:
        broker = client.broker
        name = TopicName.parse("wide")
        await broker.topics.create([broker.topics.plan(NewTopic(name, 4))])
        rules.denied_topic = denied
        # It waits for more than there is, so that it looks at all partitions twice.
        answer = client.ask("fetch", 12, fetch(4, min_bytes=1 << 19, max_wait_ms=100))
        waiting = asyncio.ensure_future(answer)
        await asyncio.sleep(0)
        await client.append(broker.topics.get(name).partition(0), 3)
        (topic,) = (await waiting).responses
        assert len(rules.asked) == 1
        for row in topic.partitions:
            assert row.error_code == (TOPIC_DENIED if denied else 0)
            assert row.high_watermark == (-1 if denied else 3 if row.partition_index == 0 else 0)
            assert bool(row.records) == (not denied and row.partition_index == 0)

    with_broker(scenario, authorizer=rules)


@pytest.mark.parametrize("transactional_id", [None, "x"])
def test_a_producer_that_wants_no_answers_loses_its_connection(
    with_broker: Run, transactional_id: str | None
) -> None:
    rules = Rules()

    class Peer:
        closed = False
        sent = 0

        def send(self, parts: Any) -> None:
            self.sent += 1

        def pause_reading(self) -> None: ...

        def resume_reading(self) -> None: ...

        def has_hung_up(self) -> bool:
            return False

        def close(self) -> None:
            self.closed = True

    async def scenario(client: Any) -> None:
        names = await furnished(client)
        data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, names.batch)])]
        parts: list[Any] = [encode_request_header(produce.API_KEY, 9, 7, "test")]
        ask_produce.encode_request(9, ProduceRequest(transactional_id, 0, 1000, data), parts)
        frame = b"".join(parts)
        frame = len(frame).to_bytes(4, "big") + frame
        log = client.broker.topics.get(TopicName.parse("t")).partition(0).log
        denied: Any
        for denied, appended in ((), 1), (_missing_right(transactional_id), 0):
            rules.denied = denied
            before, peer = log.next_offset, Peer()
            node = client.broker.nodes.all[0]
            session = KafkaSession(client.service, peer, node, "PLAINTEXT", 1, "127.0.0.1", "127.0.0.1")
            session.intake.monotonic = lambda: 0.0  # turns have no end, however busy the machine is
            session.get_buffer()[: len(frame)] = frame
            session.received(len(frame))
            assert (peer.closed, peer.sent) == (not appended, 0)
            assert log.next_offset == before + appended

    with_broker(scenario, authorizer=rules)


def _missing_right(transactional_id: str | None) -> set[Right]:
    kind = ResourceType.TOPIC if transactional_id is None else ResourceType.TRANSACTIONAL_ID
    return {(Operation.WRITE, kind)}
