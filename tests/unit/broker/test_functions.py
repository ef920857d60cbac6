"""Declared functions without their processes: what is stored, who speaks for them, and what is refused."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from magnetar.broker.jobs.errors import FunctionExists, FunctionNotFound, FunctionsDisabled, InvalidFunction
from magnetar.broker.jobs.functions import CODE_PART_BYTES, Functions, new_function
from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import Principal
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
CONFIG = {"className": "f.process", "inputs": ["in"]}
MADE = new_function("public", "default", "f", CONFIG, "f.py", ALICE)
WHICH = ("public", "default", "f")


def with_functions(test: Callable[[Functions, MemoryMetadataStore], Awaitable[None]]) -> None:
    async def main() -> None:
        metadata = MemoryMetadataStore()
        await test(Functions(metadata, FakeClock(), enabled=True), metadata)

    asyncio.run(main())


def test_code_and_declaration_are_read_again_as_they_were() -> None:
    async def test(functions: Functions, metadata: MemoryMetadataStore) -> None:
        code = bytes(range(256)) * (CODE_PART_BYTES // 128)
        made = await functions.create(MADE, code)
        await functions.run(*WHICH, 0, wanted=False)
        again = Functions(metadata, FakeClock(), enabled=True)
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
        await functions.delete(*WHICH)
        assert await metadata.scan("/") == []
        with pytest.raises(FunctionNotFound):
            await functions.count(made, "k", 1)

    with_functions(test)


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
        await Functions(metadata, FakeClock(), enabled=True).create(MADE, b"code")
        functions = Functions(metadata, FakeClock(), enabled=False)
        await functions.load()
        assert not functions.wanted()
        with pytest.raises(FunctionsDisabled):
            functions.get(*WHICH)
        with pytest.raises(FunctionsDisabled):
            await functions.create(replace(MADE, name="g"), b"code")

    asyncio.run(main())
