"""Declared functions without their processes: what is stored, who speaks for them, and what is refused."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from magnetar.base.event import Event
from magnetar.broker.jobs import functions as jobs
from magnetar.broker.jobs.errors import (
    FunctionBusy,
    FunctionExists,
    FunctionNotFound,
    FunctionsDisabled,
    InvalidFunction,
)
from magnetar.broker.jobs.function_code import CODE_PART_BYTES
from magnetar.broker.jobs.function_model import new_function
from magnetar.broker.jobs.functions import ENDING_S_MAX, FunctionRights, Functions
from magnetar.broker.jobs.model import InstanceSays
from magnetar.broker.policy.model import Policies
from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import Principal
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore
from tests.unit.broker.function_world import functions_in, secrets_in

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
CONFIG = {"className": "f.process", "inputs": ["in"]}
MADE = new_function("public", "default", "f", CONFIG, "f.py", ALICE)
WHICH = ("public", "default", "f")


def with_functions(test: Callable[[Functions, MemoryMetadataStore], Awaitable[None]]) -> None:
    async def main() -> None:
        metadata = MemoryMetadataStore()
        await test(
            functions_in(metadata),
            metadata,
        )

    asyncio.run(main())


def test_code_and_declaration_are_read_again_as_they_were() -> None:
    async def test(functions: Functions, metadata: MemoryMetadataStore) -> None:
        code = bytes(range(256)) * (CODE_PART_BYTES // 128)
        made = await functions.create(MADE, code)
        await functions.run(*WHICH, 0, wanted=False)
        again = functions_in(metadata)
        await again.load()
        found = again.get(*WHICH)
        assert found == replace(made, stopped=frozenset((0,)))
        assert await again.code(found) == code
        assert again.wanted() == []

    with_functions(test)


def test_deleted_function_leaves_nothing() -> None:
    async def test(functions: Functions, metadata: MemoryMetadataStore) -> None:
        made = await functions.create(MADE, b"code")
        await functions.count(made, "k", 2)
        await functions.update(replace(MADE, file_name="g.py", config={}), b"other")
        await functions.delete(made)
        assert await metadata.scan("/") == []
        with pytest.raises(FunctionNotFound):
            await functions.count(made, "k", 1)

    with_functions(test)


def test_deletion_waits_for_processes_and_lets_none_start() -> None:
    async def test(functions: Functions, metadata: MemoryMetadataStore) -> None:
        made = await functions.create(MADE, b"code")
        tokens = [functions.let_in(made) for _ in range(2)]
        entered = asyncio.Event()

        async def end() -> None:
            async with functions.ending(made):
                entered.set()
                await functions.delete(made)

        ending = asyncio.create_task(end())
        for token in tokens:
            await _settle()
            assert (entered.is_set(), functions.wanted()) == (False, [])
            with pytest.raises(FunctionNotFound):
                functions.let_in(made)
            with pytest.raises(FunctionBusy):
                async with functions.ending(made):
                    pass
            functions.shut_out(token)
        await ending
        with pytest.raises(FunctionNotFound):
            functions.let_in(made)

    with_functions(test)


def test_function_whose_process_does_not_end_is_not_deleted_and_runs_again() -> None:
    async def main() -> None:
        clock = FakeClock()
        metadata = MemoryMetadataStore()
        functions = functions_in(metadata, clock)
        made = await functions.create(MADE, b"code")
        functions.let_in(made)

        async def end() -> None:
            async with functions.ending(made):
                raise AssertionError("a process is there")

        ending = asyncio.create_task(end())
        await _settle()
        clock.advance(ENDING_S_MAX)
        with pytest.raises(FunctionBusy):
            await ending
        assert functions.wanted() == [(made, 0)]

    asyncio.run(main())


async def _settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_function_runs_only_while_its_owner_has_the_right() -> None:
    async def main() -> None:
        may: set[Principal] = {ALICE}
        metadata = MemoryMetadataStore()
        rights_changed: Event[()] = Event()
        functions = Functions(
            metadata,
            FakeClock(),
            lambda _: Policies(),
            secrets_in(metadata),
            FunctionRights(lambda one: one.owner in may, lambda *_: True, rights_changed),
            enabled=True,
        )
        made = await functions.create(MADE, b"code")
        assert functions.wanted() == [(made, 0)]
        functions.heard(made, 0, InstanceSays(running=True))
        waiting = asyncio.create_task(functions.wait_for_change(10))
        await _settle()
        may.clear()
        rights_changed.happened()
        await waiting  # the fake clock stands still
        assert functions.wanted() == []
        assert functions.says(made, 0).error == "", "it runs until its process has ended"
        functions.heard(made, 0, InstanceSays(running=False))
        refusal = "the instance cannot run: User:alice may not run functions in public/default"
        assert functions.says(made, 0).error == refusal
        may.add(ALICE)
        assert functions.wanted() == [(made, 0)]
        assert functions.says(made, 0).error == ""

    asyncio.run(main())


def test_function_acts_for_who_changed_it_last_and_only_while_its_process_runs() -> None:
    async def test(functions: Functions, metadata: MemoryMetadataStore) -> None:
        await functions.create(MADE, b"code")
        await functions.update(replace(MADE, config={"parallelism": 2}, owner=BOB), None)
        token = functions.let_in(functions.get(*WHICH))
        assert functions.speaking(token).owner == BOB
        functions.shut_out(token)
        with pytest.raises(AuthenticationFailed):
            functions.speaking(token)

    with_functions(test)


def test_a_tenant_leaves_others_half_of_the_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "FUNCTIONS_MAX", 8)

    async def test(functions: Functions, metadata: MemoryMetadataStore) -> None:
        async def declared(tenant: str) -> int:
            """How many functions the tenant can have; it declares as many as it can."""
            for number in range(9):
                try:
                    await functions.create(
                        new_function(tenant, "n", f"f{number}", CONFIG, "f.py", ALICE), b"code"
                    )
                except InvalidFunction:
                    return number
            raise AssertionError("there is no limit")

        assert [await declared(tenant) for tenant in "abcd"] == [4, 2, 1, 1]

    with_functions(test)


def test_a_tenant_leaves_others_half_of_the_memory_for_code_and_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "KEPT_BYTES_MAX", 4 * CODE_PART_BYTES)

    async def test(functions: Functions, metadata: MemoryMetadataStore) -> None:
        made = await functions.create(MADE, b"code")  # counts as a part
        value = bytes(60 << 10)  # 80 KiB, as it is stored

        async def refused(name: str) -> None:
            with pytest.raises(InvalidFunction, match="the functions of the tenant public keep"):
                await functions.put_state(made, name, value, None)

        for number in range(6):
            await functions.put_state(made, f"k{number}", value, None)
        await refused("more")
        await functions.put_state(made, "k0", value, None)
        await functions.put_state(made, "k0", b"less", None)
        await functions.put_state(made, "more", value, None)
        await functions.drop_state(made, "k1")
        await functions.put_state(made, "k1", value, None)
        await refused("k0")
        with pytest.raises(InvalidFunction, match="the functions of the tenant public keep"):
            await functions.update(replace(MADE, file_name="g.py", config={}), bytes(2 * CODE_PART_BYTES))
        other = await functions.create(replace(MADE, tenant="other"), b"code")
        await functions.put_state(other, "k", b"v", None)
        with pytest.raises(InvalidFunction, match="the functions of the tenant third keep 0 bytes"):
            await functions.create(replace(MADE, tenant="third"), bytes(3 * CODE_PART_BYTES))
        again = functions_in(metadata)
        await again.load()
        with pytest.raises(InvalidFunction, match="keep"):
            await again.put_state(again.get(*WHICH), "k0", value, None)
        await functions.delete(made)
        made = await functions.create(MADE, b"code")
        await functions.put_state(made, "k0", value, None)

    with_functions(test)


def test_counter_and_bytes_of_a_key() -> None:
    async def test(functions: Functions, metadata: MemoryMetadataStore) -> None:
        made = await functions.create(MADE, b"code")
        assert [await functions.count(made, "k", amount) for amount in (1, 5, -2)] == [1, 6, 4]
        await functions.put_state(made, "k", b"v", None)
        kept = await functions.state(made, "k")
        assert (kept.data, kept.number, kept.version) == (b"v", None, 3)
        with pytest.raises(InvalidFunction):
            await functions.count(made, "big", 1 << 63)
        with pytest.raises(InvalidFunction):
            await functions.put_state(made, "", b"v", None)

    with_functions(test)


@pytest.mark.parametrize("change", [{"retainOrdering": True}, {"inputs": ["other"]}, {"subName": "s"}, {}])
def test_update_of_what_cannot_change_is_refused(change: dict[str, object]) -> None:
    async def test(functions: Functions, metadata: MemoryMetadataStore) -> None:
        made = await functions.create(MADE, b"code")
        with pytest.raises(InvalidFunction):
            await functions.update(replace(MADE, config=change), None)
        assert functions.get(*WHICH) == made

    with_functions(test)


@pytest.mark.parametrize("name", ["../f.py", "f.sh", "a/b.py", ".py", ""])
def test_file_of_code_has_a_plain_name(name: str) -> None:
    async def test(functions: Functions, metadata: MemoryMetadataStore) -> None:
        with pytest.raises(InvalidFunction):
            await functions.create(replace(MADE, file_name=name), b"code")

    with_functions(test)


def test_second_function_of_a_name_is_refused() -> None:
    async def test(functions: Functions, metadata: MemoryMetadataStore) -> None:
        await functions.create(MADE, b"code")
        with pytest.raises(FunctionExists):
            await functions.create(MADE, b"code")

    with_functions(test)


def test_nothing_is_declared_or_wanted_where_functions_are_off() -> None:
    async def main() -> None:
        metadata = MemoryMetadataStore()
        await functions_in(metadata).create(MADE, b"code")
        functions = Functions(
            metadata,
            FakeClock(),
            lambda _: Policies(),
            secrets_in(metadata),
            FunctionRights(lambda _: True, lambda *_: True, Event()),
            enabled=False,
        )
        await functions.load()
        assert not functions.wanted()
        with pytest.raises(FunctionsDisabled):
            functions.get(*WHICH)
        with pytest.raises(FunctionsDisabled):
            await functions.create(replace(MADE, name="g"), b"code")

    asyncio.run(main())
