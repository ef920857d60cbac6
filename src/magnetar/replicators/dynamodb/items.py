"""What a record becomes in a table of DynamoDB, without I/O.

**append** (default).  Each record is an item of its own.  The table's partition key, a text, is the name of the
record's partition, and the sort key, a number, is the offset.  So the table has a record once, also if it is sent
twice.

**upsert**.  The table's only key is the record's key, as a text or as bytes.  The item of a key is that of its last
record; a record without a value removes it.

Fields of the value, by the topic's schema, are attributes of their names.  A value without such fields is the attribute
`__value`.  The names of all other attributes of a record begin with `__`, too; they and the keys win over fields of the
same name.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from magnetar.replicators.dynamodb.attributes import Attribute, attribute, size_bytes
from magnetar.replicators.errors import ReplicatorConfigError
from magnetar.replicators.provider import ReplicatedRecord
from magnetar.replicators.texts import key_text, partition_name

ITEM_BYTES_MAX: Final = 400 << 10
_BY_TEXT: Final = "S"
_BY_BYTES: Final = "B"
_BY_NUMBER: Final = "N"


class Mode(Enum):
    APPEND = "append"
    UPSERT = "upsert"


class Unfit(ValueError):
    """A record that cannot be an item, with the reason."""


class Write(NamedTuple):
    """A change of one item; `identity` is the identity of the item's key."""

    record: ReplicatedRecord
    identity: tuple[tuple[str, Any], ...]
    request: Mapping[str, Any]
    size: int


class Layout:
    """The key of a table, and how records fit it."""

    def __init__(self, mode: Mode, topic: str, table: str, description: Mapping[str, Any]) -> None:
        """`description` is the answer of DescribeTable.

        Raises:
            ReplicatorConfigError: its key is not that of the mode.
        """
        types = {one["AttributeName"]: one["AttributeType"] for one in description["AttributeDefinitions"]}
        names = {one["KeyType"]: one["AttributeName"] for one in description["KeySchema"]}
        self._mode = mode
        self._topic = topic
        self._hash = names["HASH"]
        self._hash_type = types[self._hash]
        self._range = names.get("RANGE")
        range_type = None if self._range is None else types[self._range]
        if mode is Mode.APPEND and (self._hash_type, range_type) != (_BY_TEXT, _BY_NUMBER):
            raise ReplicatorConfigError(
                f"table {table} of DynamoDB needs a partition key of type S and a sort key of type N for records of"
                " writeMode append: make another table, or choose upsert"
            )
        if mode is Mode.UPSERT and (range_type is not None or self._hash_type not in (_BY_TEXT, _BY_BYTES)):
            raise ReplicatorConfigError(
                f"table {table} of DynamoDB needs a partition key of type S or B and no sort key for records of"
                " writeMode upsert: make another table, or choose append"
            )

    def write(self, record: ReplicatedRecord) -> Write:
        """Raises Unfit."""
        key = self._key(record)
        identity = self.identity(key)
        if self._mode is Mode.UPSERT and record.value is None:
            return Write(record, identity, {"DeleteRequest": {"Key": key}}, _size(key))
        item = {**_fields(record), **self._own(record), **key}
        size = _size(item)
        if size > ITEM_BYTES_MAX:
            raise Unfit(f"it is too large for DynamoDB: {size} bytes, and {ITEM_BYTES_MAX} are allowed")
        return Write(record, identity, {"PutRequest": {"Item": item}}, size)

    def identity_of(self, request: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
        """The identity of the item that a request is about."""
        put = request.get("PutRequest")
        return self.identity(request["DeleteRequest"]["Key"] if put is None else put["Item"])

    def identity(self, attributes: Mapping[str, Attribute]) -> tuple[tuple[str, Any], ...]:
        names = (self._hash,) if self._range is None else (self._hash, self._range)
        return tuple(next(iter(attributes[name].items())) for name in names)

    def _key(self, record: ReplicatedRecord) -> dict[str, Attribute]:
        if self._range is not None:
            place = partition_name(self._topic, record.partition)
            return {self._hash: {_BY_TEXT: place}, self._range: {_BY_NUMBER: str(record.offset)}}
        if not record.key:
            raise Unfit("it has no key, and writeMode is upsert")
        is_text = self._hash_type == _BY_TEXT
        return {self._hash: {self._hash_type: key_text(record.key) if is_text else record.key}}

    def _own(self, record: ReplicatedRecord) -> dict[str, Attribute]:
        found: dict[str, Any] = {"__timestamp": record.timestamp_ms}
        if self._mode is Mode.UPSERT:
            found |= {"__partition": record.partition, "__offset": record.offset}
        elif record.key is not None:
            found["__key"] = record.key
        if record.headers:
            found["__headers"] = [{"name": name, "value": value} for name, value in record.headers]
        if record.fields is None and record.value is not None:
            found["__value"] = record.value
        return {name: attribute(value) for name, value in found.items()}


def _fields(record: ReplicatedRecord) -> dict[str, Attribute]:
    return {name: attribute(value) for name, value in (record.fields or {}).items()}


def _size(item: Mapping[str, Attribute]) -> int:
    return sum(size_bytes(name, value) for name, value in item.items())
