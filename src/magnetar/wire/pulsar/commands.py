"""Pulsar commands in frames.

    u32  command size
    ...  BaseCommand (protobuf)
    ...  an entry, with SEND and MESSAGE only; what it holds is `entry.py`'s matter

The frame's own size in front of that is `wire/framing.py`'s.  A command comes in checked: required fields are there,
the sub-message that the type announces is set, and texts are UTF-8 (protobuf's Python runtime leaves all three to us).
"""

from collections.abc import Iterable
from struct import Struct
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from magnetar.base.errors import WireError
from magnetar.base.varint import varint
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand

Buffer = bytes | bytearray | memoryview

PROTOCOL_VERSION: Final = 21  # the newest that is spoken here
FRAME_PADDING_BYTES: Final = (
    10 * 1024
)  # a frame may exceed the greatest message by so much: the command, metadata
COMMAND_BYTES_MAX: Final = 1 << 20  # far above any real one; an entry's bytes are not among them
# Properties and hash ranges of one command, in messages: a megabyte of them is half a second's work.
PARTS_MAX: Final = 4096
# The earliest and latest ids as they stand in uint64 fields; they carry signed numbers.
EARLIEST: Final = (1 << 64) - 1
LATEST: Final = (1 << 63) - 1
_LENGTH_DELIMITED: Final = 2  # protobuf's wire type of a message
NO_REQUEST_ID: Final = (1 << 64) - 1  # of what the broker says unasked

_U32: Final = Struct(">I")
_SIZES: Final = Struct(">II")
_FIELDS: Final = {
    field.number: field.name for field in BaseCommand.DESCRIPTOR.fields if field.message_type is not None
}
# Sent for every message or so, or of very many ids, and without any text that is read.
_WITHOUT_TEXT: Final = frozenset(
    (
        BaseCommand.SEND,
        BaseCommand.ACK,
        BaseCommand.FLOW,
        BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
    )
)
_WITH_ENTRY: Final = frozenset((BaseCommand.SEND, BaseCommand.MESSAGE))


class UnknownCommand(WireError):
    """A well-formed frame with a command that this version does not know."""


def read_command(frame: memoryview) -> tuple["BaseCommand.Type", Any, memoryview]:
    """The command's type, its sub-message and the entry behind it (empty but for SEND and MESSAGE), not copied.

    Raises:
        UnknownCommand: its type is none that we know.
        WireError: the frame is malformed.
    """
    if len(frame) < 4:
        raise WireError("a frame too short for a command's size")
    (size,) = _U32.unpack_from(frame)
    end = size + 4
    if size > COMMAND_BYTES_MAX or end > len(frame):
        raise WireError(f"a command of {size} bytes in a frame of {len(frame)}")
    try:
        command = BaseCommand.FromString(frame[4:end])  # type: ignore[arg-type]  # any buffer will do
    except DecodeError as error:
        raise WireError(f"a malformed command: {error}") from error
    if not command.HasField("type"):
        raise UnknownCommand("a command of an unknown type")
    kind = command.type
    name = _FIELDS[kind]
    if not command.HasField(name):
        raise WireError(f"a {BaseCommand.Type.Name(kind)} without its fields")
    body = getattr(command, name)
    if not body.IsInitialized():
        missing = ", ".join(body.FindInitializationErrors())
        raise WireError(f"a {BaseCommand.Type.Name(kind)} without {missing}")
    if kind not in _WITHOUT_TEXT and _check_text(body, PARTS_MAX) < 0:
        raise WireError(f"a {BaseCommand.Type.Name(kind)} of more than {PARTS_MAX} parts")
    if end < len(frame) and kind not in _WITH_ENTRY:
        raise WireError(f"{len(frame) - end} bytes behind a {BaseCommand.Type.Name(kind)}")
    return kind, body, frame[end:]


def _check_text(message: Message, parts_left: int) -> int:
    """How many more parts the command may have; below zero it has too many, and not all was looked at."""
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            for text in (
                value if isinstance(value, Iterable) and not isinstance(value, str | bytes) else (value,)
            ):
                if not isinstance(text, str):  # how the runtime gives what is not UTF-8
                    raise WireError(f"{field.full_name} is not UTF-8")
        elif field.message_type is not None:
            inner = (value,) if isinstance(value, Message) else value
            parts_left -= len(inner)
            if parts_left < 0:
                return parts_left
            for one in inner:
                parts_left = _check_text(one, parts_left)
    return parts_left


def frame_command(command: BaseCommand) -> bytes:
    """A whole frame of a command without an entry."""
    body = command.SerializeToString()
    return _SIZES.pack(len(body) + 4, len(body)) + body


def frame_in_parts(kind: "BaseCommand.Type", body: list[bytes]) -> list[bytes]:
    """A whole frame of a command without an entry, whose sub-message comes encoded, in pieces.

    What protobuf reads of messages that follow each other is one message, whose repeated fields have what all of them
    have.  So a list of any length can be encoded piece by piece.
    """
    size = sum(map(len, body))
    # A type has the number of its field.
    front = BaseCommand(type=kind).SerializeToString() + varint(kind << 3 | _LENGTH_DELIMITED) + varint(size)
    command_bytes = len(front) + size
    return [_SIZES.pack(command_bytes + 4, command_bytes) + front, *body]


class MessageFrames:
    """Makes the fronts of MESSAGE frames: what is sent before the bytes of an entry.

    One command object is filled in again and again, which takes half the time of making one each.
    """

    __slots__ = ("_command", "_id", "_message")

    def __init__(self, consumer_id: int, partition: int, epoch: int | None = None) -> None:
        self._command = BaseCommand(type=BaseCommand.MESSAGE)
        self._message = self._command.message
        self._message.consumer_id = consumer_id
        self._id = self._message.message_id
        self._id.partition = partition
        if epoch is not None:
            self._message.consumer_epoch = epoch

    def set_epoch(self, epoch: int) -> None:
        self._message.consumer_epoch = epoch

    def front(
        self,
        ledger_id: int,
        entry_id: int,
        entry_bytes: int,
        redelivery_count: int = 0,
        ack_set: Iterable[int] = (),
    ) -> bytes:
        """What goes in front of an entry of `entry_bytes` bytes.  `ack_set`: words; a set bit is unacknowledged."""
        message = self._message
        self._id.ledgerId = ledger_id
        self._id.entryId = entry_id
        message.redelivery_count = redelivery_count
        if message.ack_set:
            message.ClearField("ack_set")
        if ack_set:
            message.ack_set.extend(ack_set)
        body = self._command.SerializeToString()
        return _SIZES.pack(len(body) + 4 + entry_bytes, len(body)) + body
