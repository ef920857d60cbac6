"""Every command of a running server, sent by clients with and without the rights that it takes.

The rows are those of `authorized_commands.py`, the columns those of `book.py`; who may what is the rule book's answer.
"""

from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest
from google.protobuf.descriptor import FieldDescriptor

from magnetar.broker.security.model import subscription_resource
from magnetar.protocols.pulsar.commands import load_commands
from magnetar.wire.pulsar import PulsarApi_pb2 as pb
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, ServerError
from tests.unit.protocols.pulsar.authorized_commands import (
    ASKS_NOTHING,
    DENIED,
    Form,
    asking,
    not_asking,
)
from tests.unit.protocols.pulsar.pulsar_producing import entry

from .book import STRANGER, SUPER, TOPIC, Book, Client, lines
from .ruled import PulsarWire, Ruled, running, token

pytestmark = pytest.mark.xdist_group("pulsar's matrix")
BOOK: Final = Book(subscription_resource(TOPIC, "s"))
CASES: Final = [
    (kind, form, list(BOOK.clients([frozenset({right}) for right in sorted(form.rights, key=str)])))
    for kind, forms in asking(TOPIC).items()
    for form in forms
]
NAMES: Final = {number: name for name, number in BaseCommand.Type.items()}
UNSERVED: Final = sorted(NAMES.keys() - load_commands().keys())


@pytest.fixture(scope="module")
def ruled() -> Iterator[Ruled]:
    with running(BOOK) as one:
        with one.http(SUPER) as http:
            made = http.put("/admin/v2/persistent/public/default/t")
            assert made.status_code == httpx.codes.NO_CONTENT, made.text
            made = http.put("/admin/v2/persistent/public/default/t/subscription/s")
            assert made.status_code == httpx.codes.NO_CONTENT, made.text
        yield one


def error_of(answer: Any) -> tuple[int, str]:
    if "error_code" in answer.DESCRIPTOR.fields_by_name:
        return answer.error_code, answer.error_message
    if "error" in answer.DESCRIPTOR.fields_by_name:
        return answer.error, answer.message
    return ServerError.UnknownError, ""


def test_every_command_that_the_server_takes_has_a_row() -> None:
    names = {NAMES[kind] for kind in load_commands()}
    assert names == lines("pulsar").keys() == {NAMES[kind] for kind in DENIED.keys() | ASKS_NOTHING.keys()}


@pytest.mark.parametrize("kind", UNSERVED, ids=NAMES.get)
def test_the_server_takes_no_other_command(ruled: Ruled, kind: int) -> None:
    body = smallest(BaseCommand.DESCRIPTOR.fields_by_number[kind])
    with ruled.pulsar(SUPER) as wire:
        wire.say(body)
        assert wire.hear() is None


def smallest(field: Any) -> Any:
    """A message of the field's type, with what it cannot be without."""
    assert field.message_type is not None
    message = getattr(pb, field.message_type.name)()
    for part in field.message_type.fields:
        if not part.is_required:
            continue
        if part.message_type is not None:
            getattr(message, part.name).CopyFrom(smallest(part))
        elif part.enum_type is not None:
            setattr(message, part.name, part.enum_type.values[0].number)
        else:
            values = {FieldDescriptor.CPPTYPE_STRING: b"" if part.type == part.TYPE_BYTES else "x"}
            setattr(message, part.name, values.get(part.cpp_type, 1))
    return message


@pytest.mark.parametrize(
    ("kind", "form", "clients"),
    CASES,
    ids=[f"{NAMES[kind]} {number}" for number, (kind, *_) in enumerate(CASES)],
)
def test_who_may(ruled: Ruled, kind: int, form: Form, clients: list[Client]) -> None:
    """Those that may not come first: what they ask changes nothing."""
    for client in sorted(clients, key=lambda one: may(one.name, form)):
        with ruled.pulsar(client.name) as wire:
            wire.say(form.body)
            found, answer = wire.answer()
        refusal = ServerError.AuthorizationError, f"Client is not authorized to {DENIED[kind][1]}"
        if may(client.name, form):
            assert error_of(answer)[0] != ServerError.AuthorizationError, (client, answer)
        else:
            assert found == DENIED[kind][0], client
            assert error_of(answer) == refusal, client


def may(name: str, form: Form) -> bool:
    return all(BOOK.allows(name, right) for right in form.rights)


@pytest.mark.parametrize("kind", ASKS_NOTHING, ids=NAMES.get)
def test_what_takes_no_right_is_refused_to_no_client_for_one(ruled: Ruled, kind: int) -> None:
    with ruled.pulsar(STRANGER) as wire:
        wire.say(not_asking()[kind], entry(0) if kind == BaseCommand.SEND else b"", pb.CommandPing())
        while (found := wire.hear()) is not None and found[0] != BaseCommand.PONG:
            assert error_of(found[1])[0] != ServerError.AuthorizationError, found


@pytest.mark.parametrize("kind", sorted(DENIED.keys() | ASKS_NOTHING.keys()), ids=NAMES.get)
def test_nothing_is_answered_before_a_login(ruled: Ruled, kind: int) -> None:
    forms = asking(TOPIC)
    body = forms[kind][0].body if kind in forms else not_asking()[kind]
    with PulsarWire(ruled.server.pulsar_port) as wire:
        wire.say(body, entry(0) if kind == BaseCommand.SEND else b"")
        found = wire.hear()
        if kind == BaseCommand.CONNECT:
            assert found is not None
            assert error_of(found[1])[0] == ServerError.AuthenticationError
            found = wire.hear()
        assert found is None


@pytest.mark.parametrize(
    "shown", [None, "", "nonsense", token(SUPER)[:-4] + "AAAA"], ids=["none", "empty", "nonsense", "forged"]
)
def test_a_login_that_is_none_is_refused(ruled: Ruled, shown: str | None) -> None:
    with PulsarWire(ruled.server.pulsar_port) as wire:
        found = wire.connect(shown)
        assert found is not None
        assert error_of(found[1]) == (ServerError.AuthenticationError, "Failed to authenticate")
        assert wire.hear() is None
