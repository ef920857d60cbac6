"""Delegation tokens over the wire: made, renewed, ended and listed, by whom, and what clients do that log in by one."""

import hmac
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from magnetar.base.settings_delegation import DelegationTokenSettings
from magnetar.broker.security.model import Caller, Operation, Principal, Resource, ResourceType
from magnetar.protocols.kafka.handlers import describe_delegation_token as describing
from magnetar.protocols.kafka.large import ELEMENTS_AT_ONCE, Large
from magnetar.wire.kafka.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from magnetar.wire.kafka.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from magnetar.wire.kafka.messages.expire_delegation_token import ExpireDelegationTokenRequest
from magnetar.wire.kafka.messages.renew_delegation_token import RenewDelegationTokenRequest

Run = Callable[..., None]
DAY_MS = 86_400_000
ENABLED = DelegationTokenSettings("hunter2")
DISABLED, NOT_FOUND, MISMATCH, NOT_ALLOWED, DENIED, EXPIRED, BAD_TYPE, LIMITED = (
    61,
    62,
    63,
    64,
    65,
    66,
    67,
    44,
)


class Rules:
    """An authorizer that allows these rights and no others."""

    tells_hosts_apart = False

    def __init__(self, *allowed: tuple[str, Operation, Resource]) -> None:
        self.allowed = allowed

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        return (caller.principal.name, operation, resource) in self.allowed

    def allows_any(self, caller: Caller, operation: Operation, kind: ResourceType) -> bool:
        return False


def become(client: Any, user: str, *, by_token: bool = False) -> None:
    client.caller = Caller(Principal("User", user), "127.0.0.1", by_token=by_token)


async def create(
    client: Any,
    owner: str | None = None,
    renewers: Sequence[str] = (),
    lifetime_ms: int = -1,
    *,
    version: int = 3,
    kind: str = "User",
) -> Any:
    named = [CreatableRenewers("User", name) for name in renewers]
    request = CreateDelegationTokenRequest(kind if owner else None, owner, named, lifetime_ms)
    return await client.ask("create_delegation_token", version, request)


async def renew(client: Any, token_hmac: bytes, period_ms: int = -1, version: int = 2) -> tuple[int, int]:
    asked = RenewDelegationTokenRequest(token_hmac, period_ms)
    answer = await client.ask("renew_delegation_token", version, asked)
    return answer.error_code, answer.expiry_timestamp_ms


async def expire(client: Any, token_hmac: bytes, period_ms: int = -1, version: int = 2) -> tuple[int, int]:
    asked = ExpireDelegationTokenRequest(token_hmac, period_ms)
    answer = await client.ask("expire_delegation_token", version, asked)
    return answer.error_code, answer.expiry_timestamp_ms


async def describe(client: Any, owners: list[str] | None = None, version: int = 3) -> Any:
    named = None if owners is None else [DescribeDelegationTokenOwner("User", name) for name in owners]
    return await client.ask("describe_delegation_token", version, DescribeDelegationTokenRequest(named))


async def ids(client: Any, owners: list[str] | None = None) -> list[str]:
    answer = await describe(client, owners)
    assert answer.error_code == 0
    return sorted(one.token_id for one in answer.tokens)


# --- the four APIs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_token_is_made_and_described(with_broker: Run, version: int) -> None:
    async def scenario(client: Any) -> None:
        become(client, "alice")
        before_ms = client.broker.clock.now_ms()
        made = await create(client, renewers=["bob", "carol", "bob"], version=version)
        after_ms = client.broker.clock.now_ms()
        assert made.error_code == 0
        assert (made.principal_type, made.principal_name) == ("User", "alice")
        assert before_ms <= made.issue_timestamp_ms <= after_ms
        assert made.expiry_timestamp_ms == made.issue_timestamp_ms + DAY_MS
        assert made.max_timestamp_ms == made.issue_timestamp_ms + 7 * DAY_MS
        assert made.hmac == hmac.digest(b"hunter2", made.token_id.encode(), "sha512")
        (shown,) = (await describe(client, version=version)).tokens
        assert (shown.token_id, shown.hmac) == (made.token_id, made.hmac)
        assert (shown.principal_type, shown.principal_name) == ("User", "alice")
        times = shown.issue_timestamp, shown.expiry_timestamp, shown.max_timestamp
        assert times == (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms)
        assert [(one.principal_type, one.principal_name) for one in shown.renewers] == [
            ("User", "bob"),
            ("User", "carol"),
        ]
        requester = ("User", "alice") if version >= 3 else ("", "")
        for one in (made, shown):
            assert (one.token_requester_principal_type, one.token_requester_principal_name) == requester

    with_broker(scenario, delegation_tokens=ENABLED)


def test_how_long_a_token_lives(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        become(client, "alice")
        for asked_ms, lives_ms, lasts_ms in (
            (0, 7 * DAY_MS, DAY_MS),
            (-5, 7 * DAY_MS, DAY_MS),
            (2 * DAY_MS, 2 * DAY_MS, DAY_MS),
            (1000, 1000, 1000),
            ((1 << 63) - 1, 7 * DAY_MS, DAY_MS),
        ):
            made = await create(client, lifetime_ms=asked_ms)
            assert made.max_timestamp_ms - made.issue_timestamp_ms == lives_ms
            assert made.expiry_timestamp_ms - made.issue_timestamp_ms == lasts_ms

    with_broker(scenario, delegation_tokens=ENABLED)


def test_times_without_an_end_fit_the_answer(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        become(client, "alice")
        made = await create(client)
        assert (made.expiry_timestamp_ms, made.max_timestamp_ms) == ((1 << 63) - 1,) * 2
        assert await renew(client, made.hmac) == (0, (1 << 63) - 1)
        assert (await expire(client, made.hmac, (1 << 63) - 1)) == (0, (1 << 63) - 1)

    with_broker(
        scenario, delegation_tokens=DelegationTokenSettings("hunter2", (1 << 63) - 1, (1 << 63) - 1, 1000)
    )


@pytest.mark.parametrize("version", [1, 2])
def test_a_token_is_renewed_within_its_life(with_broker: Run, version: int) -> None:
    async def scenario(client: Any) -> None:
        become(client, "alice")
        made = await create(client, lifetime_ms=2 * DAY_MS)
        for asked_ms, lasts_ms in ((5000, 5000), (-1, DAY_MS), (0, DAY_MS), (3 * DAY_MS, DAY_MS)):
            before_ms = client.broker.clock.now_ms()
            code, ends_ms = await renew(client, made.hmac, asked_ms, version)
            assert code == 0
            assert 0 <= ends_ms - before_ms - lasts_ms < 60_000
            (shown,) = (await describe(client)).tokens
            assert (shown.expiry_timestamp, shown.max_timestamp) == (ends_ms, made.max_timestamp_ms)
        (_, ends_ms), now_ms = await renew(client, made.hmac, 1, version), client.broker.clock.now_ms()
        assert ends_ms <= now_ms + 1
        short = await create(client, lifetime_ms=60_000)
        assert await renew(client, short.hmac) == (0, short.max_timestamp_ms)

    with_broker(scenario, delegation_tokens=ENABLED)


@pytest.mark.parametrize("version", [1, 2])
def test_a_token_ends_when_it_is_told_to(with_broker: Run, version: int) -> None:
    async def scenario(client: Any) -> None:
        become(client, "alice")
        made, other = await create(client), await create(client)
        before_ms = client.broker.clock.now_ms()
        code, ends_ms = await expire(client, made.hmac, 2 * DAY_MS, version)
        assert code == 0
        assert 0 <= ends_ms - before_ms - 2 * DAY_MS < 60_000
        assert await expire(client, made.hmac, 30 * DAY_MS, version) == (0, made.max_timestamp_ms)
        code, ends_ms = await expire(client, made.hmac, -7, version)
        assert code == 0
        assert before_ms <= ends_ms <= client.broker.clock.now_ms()
        assert await ids(client) == [other.token_id]
        assert await renew(client, made.hmac) == (NOT_FOUND, -1)
        assert await expire(client, made.hmac) == (NOT_FOUND, -1)
        assert (await expire(client, other.hmac, 0))[0] == 0
        assert await ids(client) == [other.token_id]
        brief = await create(client, lifetime_ms=1)
        assert brief.max_timestamp_ms == brief.issue_timestamp_ms + 1

    with_broker(scenario, delegation_tokens=ENABLED)


def test_one_that_has_expired_is_there_and_renewed_no_more(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        become(client, "alice")
        made = await create(client)
        tokens = client.broker.delegation_tokens
        await tokens.change_expiry(tokens.find(made.hmac), client.broker.clock.now_ms() - 1)
        # In the order of real Kafka 4.3.1.
        for who, code in (("alice", EXPIRED), ("mallory", MISMATCH)):
            become(client, who)
            assert await renew(client, made.hmac) == (EXPIRED, -1)
            assert await expire(client, made.hmac, 1000) == (code, -1)
        assert await expire(client, made.hmac) == (MISMATCH, -1)
        become(client, "alice")
        other = await create(client)
        await tokens.change_expiry(tokens.find(other.hmac), client.broker.clock.now_ms() - 1)
        assert await ids(client) == sorted([made.token_id, other.token_id])
        assert (await expire(client, other.hmac))[0] == 0
        assert await ids(client) == [made.token_id]
        await tokens.remove_expired()
        assert await ids(client) == []

    with_broker(scenario, delegation_tokens=ENABLED)


# --- who may ---------------------------------------------------------------------------------------------------------


def test_without_a_secret_key_there_are_no_tokens(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        become(client, "alice")
        made = await create(client)
        assert (made.error_code, made.principal_name, made.token_id, made.hmac) == (
            DISABLED,
            "alice",
            "",
            b"",
        )
        assert await renew(client, b"x") == (DISABLED, -1)
        assert await expire(client, b"x") == (DISABLED, -1)
        assert (await describe(client)).error_code == DISABLED
        assert not [path for path, _ in await client.metadata.scan("/delegation")]

    with_broker(scenario)


@pytest.mark.parametrize(("user", "by_token"), [("ANONYMOUS", False), ("alice", True)])
def test_a_client_without_a_name_and_one_that_has_it_by_a_token_are_refused(
    with_broker: Run, user: str, by_token: bool
) -> None:
    async def scenario(client: Any) -> None:
        become(client, "alice")
        made = await create(client)
        become(client, user, by_token=by_token)
        refused = await create(client, "bob")
        assert (refused.error_code, refused.principal_name) == (NOT_ALLOWED, "bob")
        assert refused.token_requester_principal_name == user
        assert await renew(client, made.hmac) == (NOT_ALLOWED, -1)
        assert await expire(client, made.hmac) == (NOT_ALLOWED, -1)
        answer = await describe(client)
        assert (answer.error_code, answer.tokens) == (NOT_ALLOWED, [])
        become(client, "alice")
        assert await ids(client) == [made.token_id]

    with_broker(scenario, delegation_tokens=ENABLED)


def test_its_owner_and_renewers_renew_and_end_it_and_no_others(with_broker: Run) -> None:
    rules = Rules(("requester", Operation.CREATE_TOKENS, Resource(ResourceType.USER, "User:alice")))

    async def scenario(client: Any) -> None:
        become(client, "requester")
        made = await create(client, "alice", ["bob"])
        assert (made.error_code, made.principal_name) == (0, "alice")
        client.audit.take()
        for user, code in (("alice", 0), ("bob", 0), ("requester", MISMATCH), ("mallory", MISMATCH)):
            become(client, user)
            assert (await renew(client, made.hmac))[0] == code
            assert (await expire(client, made.hmac, 60_000))[0] == code
        refusals = [line for line in client.audit.take() if line["event"] == "refusal"]
        assert {(one["principal"], one["operation"], one["resource"]) for one in refusals} == {
            (f"User:{user}", "ALTER", made.token_id) for user in ("requester", "mallory")
        }
        become(client, "bob")
        assert (await expire(client, made.hmac))[0] == 0

    with_broker(scenario, authorizer=rules, delegation_tokens=ENABLED)


def test_a_token_for_another_user_takes_a_right_to_that_user(with_broker: Run) -> None:
    rules = Rules(("alice", Operation.CREATE_TOKENS, Resource(ResourceType.USER, "User:bob")))

    async def scenario(client: Any) -> None:
        become(client, "alice")
        made = await create(client, "bob")
        assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (
            0,
            "bob",
            "alice",
        )
        denied = await create(client, "carol")
        assert (denied.error_code, denied.principal_name, denied.hmac) == (DENIED, "carol", b"")
        assert (await create(client, "alice")).error_code == 0
        become(client, "bob")
        assert await ids(client) == [made.token_id]

    with_broker(scenario, authorizer=rules, delegation_tokens=ENABLED)


def test_only_users_own_and_renew(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        become(client, "alice")
        assert (await create(client, "bob", kind="Group")).error_code == BAD_TYPE
        request = CreateDelegationTokenRequest(None, None, [CreatableRenewers("Group", "staff")], -1)
        assert (await client.ask("create_delegation_token", 3, request)).error_code == BAD_TYPE
        assert await ids(client) == []

    with_broker(scenario, delegation_tokens=ENABLED)


def test_who_sees_which_tokens(with_broker: Run) -> None:
    allowed: list[tuple[str, Operation, Resource]] = [
        ("admin", Operation.CREATE_TOKENS, Resource(ResourceType.USER, f"User:{user}"))
        for user in ("alice", "bob")
    ]
    rules = Rules()

    async def scenario(client: Any) -> None:
        rules.allowed = tuple(allowed)
        become(client, "admin")
        alices = (await create(client, "alice", ["carol"])).token_id
        bobs = (await create(client, "bob")).token_id
        for user, seen in (("alice", [alices]), ("bob", [bobs]), ("carol", [alices]), ("admin", [])):
            become(client, user)
            assert await ids(client) == seen
        become(client, "carol")
        assert await ids(client, []) == []
        assert await ids(client, ["bob"]) == []
        assert await ids(client, ["alice"]) == [alices]
        assert await ids(client, ["carol", "nobody"]) == [alices]
        one = ("mallory", Operation.DESCRIBE, Resource(ResourceType.DELEGATION_TOKEN, bobs))
        of_user = ("eve", Operation.DESCRIBE_TOKENS, Resource(ResourceType.USER, "User:bob"))
        rules.allowed = (*allowed, one, of_user)
        for user in ("mallory", "eve"):
            become(client, user)
            assert await ids(client) == [bobs]
            assert await ids(client, ["alice"]) == []
        assert not [line for line in client.audit.take() if line["event"] == "refusal"]

    with_broker(scenario, authorizer=rules, delegation_tokens=ENABLED)


def test_there_are_only_so_many(with_broker: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    module = "magnetar.broker.usecases.delegation_tokens"
    monkeypatch.setattr(f"{module}.OWNER_TOKENS_MAX", 1)
    monkeypatch.setattr(f"{module}.TOKENS_MAX", 2)

    async def scenario(client: Any) -> None:
        become(client, "alice")
        for answer, code in (
            (await create(client, renewers=[str(number) for number in range(101)]), LIMITED),
            (await create(client, renewers=["r" * 1025]), LIMITED),
            (await create(client, "o" * 1025), LIMITED),
            (await create(client, renewers=[f"{number:01024}" for number in range(9)]), LIMITED),
            (await create(client, renewers=["\U0001f600" * 1024, "\U0001f600" * 1024 + "r"]), LIMITED),
            (await create(client, renewers=[f"{number:01024}" for number in range(8)]), 0),
            (await create(client), LIMITED),
            (await create(client, "bob"), 0),
            (await create(client, "carol"), LIMITED),
        ):
            assert answer.error_code == code

    with_broker(scenario, delegation_tokens=ENABLED)


def test_a_listing_of_many_renewers_is_written_on_a_thread(with_broker: Run) -> None:
    # A thousand tokens of a hundred renewers held the event loop for 70 ms.
    async def scenario(client: Any) -> None:
        become(client, "alice")
        answers: list[Any] = []
        real = describing.handle

        async def noted(*given: Any) -> Any:
            answers.append(await real(*given))
            return answers[-1]

        client.service.apis[41] = replace(client.service.apis[41], handle=noted)
        count = ELEMENTS_AT_ONCE // 101 + 1
        for _ in range(count):
            assert (await describe(client)).error_code == 0
            assert not isinstance(answers[-1], Large)
            assert (await create(client, renewers=[str(number) for number in range(100)])).error_code == 0
        assert len((await describe(client)).tokens) == count
        assert isinstance(answers[-1], Large)

    with_broker(scenario, delegation_tokens=ENABLED)


def test_the_audit_log_has_no_secret(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        become(client, "alice")
        made = await create(client, renewers=["bob"], lifetime_ms=60_000)
        await renew(client, made.hmac)
        await expire(client, made.hmac)
        written = b"".join(client.audit.raw)
        for secret in (b64encode(made.hmac), made.hmac.hex().encode(), b"hunter2"):
            assert secret not in written
        lines = client.audit.take()
        assert [(line["operation"], line["result"]) for line in lines] == [
            ("delegation_token.create", "done"),
            ("delegation_token.renew", "done"),
            ("delegation_token.expire", "done"),
        ]
        assert {(line["resource_type"], line["resource"]) for line in lines} == {
            ("delegation token", made.token_id)
        }
        assert lines[0]["details"] == {"owner": "User:alice", "renewers": ["User:bob"], "lifetime_ms": 60_000}

    with_broker(scenario, delegation_tokens=ENABLED)
