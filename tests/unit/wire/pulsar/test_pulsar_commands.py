"""Pulsar commands: what is well formed comes out as it was, what is not is a WireError."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.errors import WireError
from magnetar.wire.pulsar.commands import (
    COMMAND_BYTES_MAX,
    PARTS_MAX,
    MessageFrames,
    UnknownCommand,
    frame_command,
    read_command,
)
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandLookupTopic,
    CommandProducer,
    CommandSend,
    KeyValue,
    Schema,
)

CONNECT = BaseCommand(
    type=BaseCommand.CONNECT, connect=CommandConnect(client_version="a client", protocol_version=20)
)
PRODUCER = BaseCommand(
    type=BaseCommand.PRODUCER,
    producer=CommandProducer(
        topic="persistent://public/default/t",
        producer_id=1,
        request_id=2,
        metadata=[KeyValue(key="k", value="v")],
        schema=Schema(name="s", schema_data=b"\xff", type=Schema.Avro),
    ),
)
SEND = BaseCommand(type=BaseCommand.SEND, send=CommandSend(producer_id=1, sequence_id=2, num_messages=3))


def inside(frame: bytes) -> memoryview:
    """The frame without its size, which must be right."""
    (size,) = struct.unpack_from(">I", frame)
    assert size == len(frame) - 4
    return memoryview(frame)[4:]


def raw(body: bytes, entry: bytes = b"") -> memoryview:
    return memoryview(struct.pack(">I", len(body)) + body + entry)


@pytest.mark.parametrize(("command", "name"), [(CONNECT, "connect"), (PRODUCER, "producer"), (SEND, "send")])
def test_a_command_comes_out_as_it_went_in(command: BaseCommand, name: str) -> None:
    kind, body, entry = read_command(inside(frame_command(command)))
    assert kind == command.type
    assert body == getattr(command, name)
    assert not entry


def test_every_type_has_the_field_of_its_number() -> None:
    numbers = {field.number for field in BaseCommand.DESCRIPTOR.fields if field.message_type is not None}
    assert numbers == set(BaseCommand.Type.values())


def test_an_entry_is_given_as_a_view() -> None:
    frame = raw(SEND.SerializeToString(), b"the entry")
    _, _, entry = read_command(frame)
    assert bytes(entry) == b"the entry"
    assert entry.obj is frame.obj


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (memoryview(b""), "too short"),
        (memoryview(b"\0\0\0"), "too short"),
        (memoryview(b"\0\0\0\5abc"), "in a frame of"),
        (memoryview(b"\xff\xff\xff\xff"), "in a frame of"),
        (
            memoryview(struct.pack(">I", COMMAND_BYTES_MAX + 1) + bytes(COMMAND_BYTES_MAX + 1)),
            "in a frame of",
        ),
        (raw(b"\xff"), "malformed"),
        (raw(BaseCommand(type=BaseCommand.LOOKUP).SerializePartialToString()), "without its fields"),
        (
            raw(
                BaseCommand(
                    type=BaseCommand.LOOKUP, lookupTopic=CommandLookupTopic(topic="t")
                ).SerializePartialToString()
            ),
            "without request_id",
        ),
        (raw(CONNECT.SerializeToString(), b"x"), "bytes behind"),
    ],
)
def test_what_is_malformed_is_refused(frame: memoryview, says: str) -> None:
    with pytest.raises(WireError, match=says):
        read_command(frame)


def test_a_command_may_have_as_many_bytes_as_are_allowed() -> None:
    command = BaseCommand(type=BaseCommand.CONNECT, connect=CommandConnect(client_version=""))
    spare = COMMAND_BYTES_MAX - len(command.SerializeToString())
    command.connect.client_version = "x" * (spare - 8)
    command.connect.original_principal = "y" * (COMMAND_BYTES_MAX - len(command.SerializeToString()) - 2)
    assert len(command.SerializeToString()) == COMMAND_BYTES_MAX
    read_command(inside(frame_command(command)))


@pytest.mark.parametrize("kind", [0, 1, 41, 69, 82, 127])
def test_an_unknown_type_is_told_apart(kind: int) -> None:
    with pytest.raises(UnknownCommand):
        read_command(raw(bytes([0x08, kind])))


@pytest.mark.parametrize("at", ["topic", "metadata", "schema"])
def test_text_that_is_not_utf8_is_refused_wherever_it_is(at: str) -> None:
    command = BaseCommand()
    command.CopyFrom(PRODUCER)
    if at == "topic":
        command.producer.topic = "@@@@"
    elif at == "metadata":
        command.producer.metadata[0].value = "@@@@"
    else:
        command.producer.schema.name = "@@@@"
    body = command.SerializeToString().replace(b"@@@@", b"@\xff\xfe@")
    with pytest.raises(WireError, match="UTF-8"):
        read_command(raw(body))


@given(data=st.data())
def test_damage_raises_nothing_but_wire_errors(data: st.DataObject) -> None:
    frame = bytearray(frame_command(data.draw(st.sampled_from([CONNECT, PRODUCER, SEND])))[4:])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(frame) - 1))
        match data.draw(st.sampled_from(["change", "drop", "repeat", "cut"])):
            case "change":
                frame[at] = data.draw(st.integers(0, 255))
            case "drop":
                del frame[at]
            case "repeat":
                frame[at:at] = frame[at : at + 8]
            case "cut":
                del frame[at:]
        frame = frame or bytearray(1)
    with contextlib.suppress(WireError):
        read_command(memoryview(frame))


@given(
    ids=st.lists(
        st.tuples(
            st.integers(0, (1 << 63) - 1),
            st.integers(0, (1 << 63) - 1),
            st.integers(0, 9),
            st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=3),
        ),
        max_size=4,
    )
)
def test_fronts_of_messages_leave_nothing_behind_for_the_next_one(
    ids: list[tuple[int, int, int, list[int]]],
) -> None:
    frames = MessageFrames(7, 3, epoch=5)
    for ledger_id, entry_id, redeliveries, ack_set in ids:
        front = frames.front(ledger_id, entry_id, 5, redeliveries, ack_set)
        kind, message, entry = read_command(inside(front + b"entry"))
        assert kind == BaseCommand.MESSAGE
        assert (message.consumer_id, message.consumer_epoch) == (7, 5)
        found = message.message_id
        assert (found.ledgerId, found.entryId, found.partition) == (ledger_id, entry_id, 3)
        assert (message.redelivery_count, list(message.ack_set)) == (redeliveries, ack_set)
        assert bytes(entry) == b"entry"


@pytest.mark.parametrize(("count", "fits"), [(PARTS_MAX, True), (PARTS_MAX + 1, False)])
def test_a_command_has_so_many_parts_at_most(count: int, fits: bool) -> None:
    # A megabyte of empty properties took a third of a second to look at.
    command = BaseCommand()
    command.CopyFrom(PRODUCER)
    command.producer.ClearField("schema")
    del command.producer.metadata[:]
    command.producer.metadata.extend([KeyValue(key="", value="")] * count)
    frame = memoryview(frame_command(command))[4:]
    if fits:
        assert len(read_command(frame)[1].metadata) == count
    else:
        with pytest.raises(WireError, match="parts"):
            read_command(frame)
