"""Every API of a running server, asked as clients with and without the rights that it takes.

The rows are those of `authorized_requests.py`, the columns those of `book.py`; who may what is the rule book's answer.
"""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from magnetar.broker.security.model import group_resource
from magnetar.protocols.kafka.admin_configs import ResourceType
from magnetar.protocols.kafka.apis import load_apis
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from magnetar.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from magnetar.wire.kafka.messages.api_versions import ApiVersionsRequest
from magnetar.wire.kafka.messages.create_delegation_token import CreateDelegationTokenRequest
from magnetar.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from magnetar.wire.kafka.messages.delete_topics import DeleteTopicsRequest
from magnetar.wire.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from magnetar.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from magnetar.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.integration.server.wire import frame, record_batch
from tests.unit.protocols.kafka.authorized_kinds import DENIED_CODES, Kind, Names, codes, listed
from tests.unit.protocols.kafka.authorized_requests import ASKS_NOTHING, KINDS
from tests.unit.protocols.kafka.authorized_topic_requests import TO_BE_MADE

from .book import BOSS, STRANGER, SUPER, Book, Client, Need, lines
from .ruled import KafkaClient, Ruled, running

pytestmark = pytest.mark.xdist_group("kafka's matrix")
BOOK: Final = Book(group_resource("g"))
LINES: Final = lines("kafka")
ROWS: Final = [(kind, list(BOOK.clients(kind.refusals))) for kind in KINDS]
NOT_LOGGED_IN: Final = Client("who has not said who it is", "")
BEFORE_LOGIN: Final = frozenset(("api_versions", "sasl_handshake"))  # and sasl_authenticate behind that
# They are a user's who has logged in, whatever rights there are.
TAKES_A_LOGIN: Final = frozenset(("create_delegation_token", "describe_delegation_token"))


class World:
    """A server with what requests are about; connections to it are kept."""

    def __init__(self, ruled: Ruled) -> None:
        self.ruled = ruled
        self._kept: dict[str, KafkaClient] = {}
        asked = CreateDelegationTokenRequest("User", "bob", [], -1)
        self._token_hmac = self.super("create_delegation_token", 3, asked).hmac

    def client(self, name: str) -> KafkaClient:
        if name not in self._kept:
            self._kept[name] = self.ruled.kafka(name)
        return self._kept[name]

    def super(self, api: str, version: int, request: Any, *expected: int) -> Any:
        """What the super user is answered, without an error but those that are expected."""
        answer = self.client(SUPER).ask(api, version, request)
        assert {*codes(answer)} <= {0, *expected}, (api, answer)
        return answer

    def furnish(self) -> Names:
        """A topic with records, a group with offsets in it, a transactional id with a transaction over both."""
        made = CreateTopicsRequest([CreatableTopic("t", 1, 1)], 10_000)
        self.super("create_topics", 7, made, ErrorCode.TOPIC_ALREADY_EXISTS)
        gone = DeleteTopicsRequest(topic_names=[TO_BE_MADE], timeout_ms=10_000)
        self.super("delete_topics", 5, gone, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        named = MetadataRequest([MetadataRequestTopic(name="t")], False)
        topic_id = self.super("metadata", 12, named).topics[0].topic_id
        batch = record_batch([b"v"])
        assert self.client(SUPER).produce("t", batch).error_code == 0
        rows = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 0)])]
        self.super("offset_commit", 8, OffsetCommitRequest("g", topics=rows))
        begun = self.super("init_producer_id", 4, InitProducerIdRequest("x", 60_000, -1, -1))
        producer_id, epoch = begun.producer_id, begun.producer_epoch
        topics = [AddPartitionsToTxnTopic("t", [0])]
        self.super("add_partitions_to_txn", 3, AddPartitionsToTxnRequest([], "x", producer_id, epoch, topics))
        self.super("add_offsets_to_txn", 3, AddOffsetsToTxnRequest("x", producer_id, epoch, "g"))
        data_dir = str(self.ruled.server.data_dir)
        return Names("t", topic_id, "g", "x", producer_id, data_dir, batch, self._token_hmac)

    def close(self) -> None:
        for one in self._kept.values():
            one.socket.close()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    settings = {"delegation.token.secret.key": "hunter2", "group.initial.rebalance.delay.ms": "0"}
    with running(BOOK, **settings) as ruled:
        made = World(ruled)
        try:
            yield made
        finally:
            made.close()


def lacking(kind: Kind, name: str) -> list[Need]:
    """What a client lacks of what the request needs."""
    any_named = LINES[kind.api].any_named
    return [
        need
        for need in kind.refusals
        if not any(BOOK.allows(name, right, any_named=right in any_named) for right in need)
    ]


def test_every_api_that_the_server_offers_has_a_row(world: World) -> None:
    asked_for = AlterConfigsResource(ResourceType.CLIENT_METRICS, "all", [AlterableConfig("metrics", 0, "*")])
    world.super(
        "incremental_alter_configs", 1, IncrementalAlterConfigsRequest([asked_for])
    )  # telemetry's are shown
    offered = world.client("").ask("api_versions", 3, ApiVersionsRequest("test", "1")).api_keys
    served = load_apis()
    names = {served[one.api_key].name for one in offered}
    assert names == LINES.keys() == {kind.api for kind in KINDS} | ASKS_NOTHING.keys()


@pytest.mark.parametrize(("kind", "clients"), ROWS, ids=[kind.label for kind, _ in ROWS])
def test_who_may(world: World, kind: Kind, clients: list[Client]) -> None:
    """Those that may not come first: what they ask changes nothing."""
    names = world.furnish()
    for client in sorted([*clients, NOT_LOGGED_IN], key=lambda one: not lacking(kind, one.name)):
        missing = lacking(kind, client.name)
        if not missing:
            names = world.furnish()
        answer = world.client(client.name).ask(kind.api, kind.version, kind.request(names))
        found = list(codes(answer))
        if client is NOT_LOGGED_IN and kind.api in TAKES_A_LOGIN:
            assert found == [ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED]
        elif missing:
            assert found in [kind.refusals[need] for need in missing], (client, answer)
            assert any(found) or not listed(answer), (client, answer)
        else:
            assert not DENIED_CODES & set(found), (client, answer)
            if any(not any(refusal) for refusal in kind.refusals.values()):
                assert listed(answer), (client, answer)


@pytest.mark.parametrize("api", ASKS_NOTHING)
@pytest.mark.parametrize("name", [SUPER, BOSS, STRANGER, ""])
def test_what_takes_no_right_is_answered_to_every_client(world: World, api: str, name: str) -> None:
    version, request, _ = ASKS_NOTHING[api]
    with world.ruled.kafka(name) as client:
        assert not DENIED_CODES & {*codes(client.ask(api, version, request))}


@pytest.mark.parametrize("api", sorted(LINES))
def test_nothing_is_answered_before_a_login(world: World, api: str) -> None:
    """Where clients have to log in."""
    if api in ASKS_NOTHING:
        version, request, _ = ASKS_NOTHING[api]
    else:
        names = Names("t", bytes(16), "g", "x", 1, "", b"", b"")
        kind = next(one for one in KINDS if one.api == api)
        version, request = kind.version, kind.request(names)
    with KafkaClient(world.ruled.login_port) as stranger:
        stranger.send(frame(api, version, request))
        assert stranger.is_closed() is (api not in BEFORE_LOGIN)
