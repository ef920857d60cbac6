"""Secrets of functions: instances get them, and nothing else shows or keeps a value in clear."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from magnetar.base.event import Event
from magnetar.broker.jobs.errors import FunctionExists, InvalidFunction
from magnetar.broker.jobs.function_model import new_function
from magnetar.broker.jobs.function_secrets import NAME_CHARS_MAX, SECRET_BYTES_MAX, SECRETS_MAX
from magnetar.broker.jobs.functions import FunctionRights, Functions
from magnetar.broker.policy.model import Policies
from magnetar.broker.security.model import Principal
from magnetar.metadata.store import CommitStep
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore
from tests.unit.broker.function_world import secrets_in

WHICH = ("public", "default", "f")
OWNER = Principal("User", "alice")
VALUE = "a-well-kept-secret"
CONFIG = {"className": "f.process", "inputs": ["in"]}
VARIABLES = {"FN_KEY": "from-a-variable", "HOME": "/root"}


def declared(secrets: object) -> Any:
    return new_function(*WHICH, {**CONFIG, "secrets": secrets}, "f.py", OWNER)


def with_functions(test: Callable[[Functions, MemoryMetadataStore], Awaitable[None]]) -> None:
    async def main() -> None:
        metadata = MemoryMetadataStore()
        await test(_functions(metadata), metadata)

    asyncio.run(main())


def _functions(metadata: MemoryMetadataStore, key: bytes = b"k" * 32) -> Functions:
    secrets = secrets_in(metadata, key, VARIABLES)
    return Functions(
        metadata,
        FakeClock(),
        lambda _: Policies(),
        secrets,
        FunctionRights(lambda _: True, lambda *_: True, Event()),
        enabled=True,
    )


async def _keys(metadata: MemoryMetadataStore) -> list[str]:
    return [path for path, _ in await metadata.scan("/replicator-keys/")]


def test_instance_gets_values_and_the_configuration_has_none() -> None:
    async def test(functions: Functions, metadata: MemoryMetadataStore) -> None:
        said = {"password": VALUE, "key": {"path": "environment", "key": "FN_KEY"}}
        made = await functions.create(declared(said), b"code")
        assert made.config["secrets"] == {"password": {"path": "sealed"}, "key": {"path": "environment"}}
        assert not any(VALUE.encode() in stored.value for _, stored in await metadata.scan("/"))
        again = _functions(metadata)
        await again.load()
        assert await again.secrets(again.get(*WHICH)) == {"password": VALUE, "key": "from-a-variable"}

    with_functions(test)


def test_update_keeps_what_it_names_without_a_key_and_forgets_the_rest() -> None:
    async def test(functions: Functions, metadata: MemoryMetadataStore) -> None:
        await functions.create(declared({"a": "one", "b": "two", "c": "three"}), b"code")
        sealed = {"path": "sealed"}
        after = await functions.update(declared({"a": sealed, "b": {**sealed, "key": "new"}}), None)
        assert await functions.secrets(after) == {"a": "one", "b": "new"}
        assert len(await _keys(metadata)) == 2
        after = await functions.update(replace(after, config={"parallelism": 2}), None)
        assert await functions.secrets(after) == {"a": "one", "b": "new"}
        # The configuration is the same, and the value is another one.
        after = await functions.update(declared({"a": "1", "b": sealed}), None)
        assert await functions.secrets(after) == {"a": "1", "b": "new"}

    with_functions(test)


def test_deletion_and_refusals_leave_no_secret() -> None:
    async def test(functions: Functions, metadata: MemoryMetadataStore) -> None:
        made = await functions.create(declared({"a": VALUE}), b"code")
        with pytest.raises(FunctionExists):
            await functions.create(declared({"a": VALUE}), b"code")
        with pytest.raises(InvalidFunction, match="the secret b has no key"):
            await functions.update(declared({"a": "other", "b": {"path": "sealed"}}), None)
        with pytest.raises(InvalidFunction, match="the secret a has no key"):
            await functions.update(declared({"a": {"path": "environment"}}), None)
        assert await functions.secrets(made) == {"a": VALUE}
        assert len(await _keys(metadata)) == 1
        await functions.delete(made)
        assert await metadata.scan("/") == []

    with_functions(test)


class Killed(BaseException):
    """The server ends here: nothing handles that."""


class Mortal(MemoryMetadataStore):
    """Ends the server at a change of its metadata: the one with this number, before it or after it."""

    left, after = 1 << 30, False

    async def commit(self, operations: Sequence[CommitStep]) -> None:
        self.left -= 1
        if self.left < 0 or (self.left == 0 and not self.after):
            raise Killed
        await super().commit(operations)
        if self.left == 0:
            raise Killed


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("change", ["create", "update", "delete"])
def test_a_kill_leaves_no_secret_that_no_function_has(change: str, after: bool) -> None:
    async def until_killed(number: int) -> bool:
        metadata = Mortal()
        functions = _functions(metadata)
        made = None
        if change != "create":
            made = await functions.create(declared({"a": "one", "b": "two"}), b"code")
        metadata.left, metadata.after = number, after
        try:
            if made is None:
                await functions.create(declared({"a": "one", "b": "two"}), b"code")
            elif change == "update":
                await functions.update(declared({"a": "new", "b": {"path": "sealed"}}), None)
            else:
                await functions.delete(made)
        except Killed:
            pass
        was_killed = metadata.left <= 0
        metadata.left = 1 << 30
        again = _functions(metadata)
        await again.load()
        assert not await metadata.scan("/function-secrets-left/")
        found = again.in_namespace("public", "default")
        assert len(await _keys(metadata)) == 2 * len(found)
        for one in found:
            assert await again.secrets(one) in ({"a": "one", "b": "two"}, {"a": "new", "b": "two"})
        return was_killed

    async def main() -> None:
        number = 1
        while await until_killed(number):
            number += 1
        assert number > 3

    asyncio.run(main())


@pytest.mark.parametrize(
    ("secrets", "sentence"),
    [
        ([VALUE], "must be an object"),
        ({"a": 7}, "the secret a must be a text, or an object"),
        ({"a": {"path": "sealed", "key": VALUE, "more": 1}}, "the secret a must be a text, or an object"),
        ({"a": {"path": "sealed", "key": 7}}, "the secret a must be a text, or an object"),
        ({"a": {"path": "sealde", "key": VALUE}}, "did you mean sealed"),
        ({"a": {"path": "sealed"}}, "the secret a has no key"),
        ({"a": {"path": "environment", "key": "HOME"}}, "may not use the variable HOME"),
        ({"a": {"path": "environment", "key": "FN_NONE"}}, "has no variable FN_NONE"),
        ({"a": ""}, "must have 1 to"),
        ({"a": VALUE + "x" * SECRET_BYTES_MAX}, "must have 1 to"),
        ({"": VALUE}, "the name of a secret"),
        ({"n" * (NAME_CHARS_MAX + 1): VALUE}, "the name of a secret"),
        ({str(number): VALUE for number in range(SECRETS_MAX + 1)}, "at most"),
    ],
)
def test_secret_that_cannot_be_is_one_sentence_without_a_value(secrets: object, sentence: str) -> None:
    async def test(functions: Functions, metadata: MemoryMetadataStore) -> None:
        with pytest.raises(InvalidFunction, match=sentence) as refused:
            await functions.create(declared(secrets), b"code")
        assert VALUE not in str(refused.value)
        assert await metadata.scan("/") == []

    with_functions(test)


def test_another_key_of_the_server_is_a_reason_that_an_instance_shows() -> None:
    async def test(functions: Functions, metadata: MemoryMetadataStore) -> None:
        await functions.create(declared({"a": VALUE}), b"code")
        other = _functions(metadata, b"o" * 32)
        await other.load()
        with pytest.raises(InvalidFunction, match="the credentials of the function f of public/default"):
            await other.secrets(other.get(*WHICH))

    with_functions(test)


def test_function_that_was_stored_before_there_were_secrets_has_none() -> None:
    async def test(functions: Functions, metadata: MemoryMetadataStore) -> None:
        made = await functions.create(declared({}), b"code")
        stored = made.encode().replace(b', "secrets": {}}', b"}", 1)
        assert stored.endswith(b'"stopped": []}')
        found = type(made).decode(made.full_name, stored)
        assert (found, await functions.secrets(found)) == (made, {})

    with_functions(test)
