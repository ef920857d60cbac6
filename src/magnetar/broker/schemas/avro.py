"""Avro definitions, and whether a reader with one can read data written with another.

The rules are those of the Avro 1.11 specification, "Schema Declaration" and "Schema Resolution".  They use only the
two definitions: readable means that all data is readable.  As in Avro's Java library, which Pulsar uses, names are
compared without their namespaces, aliases with them, and a reader's enum with a default accepts unknown symbols.

A definition has a limit of nodes and depth, so that no client's definition blocks the event loop for long.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from magnetar.broker.schemas.model import InvalidSchema

NODES_MAX: Final = 5_000
DEPTH_MAX: Final = 100
PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)

# The types that a reader of one type may read, besides the same type.
_PROMOTED: Final[Mapping[str, frozenset[str]]] = {
    "long": frozenset(("int",)),
    "float": frozenset(("int", "long")),
    "double": frozenset(("int", "long", "float")),
    "bytes": frozenset(("string",)),
    "string": frozenset(("bytes",)),
}


@dataclass(slots=True, eq=False)
class Node:
    """One type of a definition; attributes that its kind does not have are empty."""

    kind: str
    name: str = ""  # with its namespace
    aliases: frozenset[str] = frozenset()
    fields: "list[Field]" = field(default_factory=list)
    symbols: frozenset[str] = frozenset()
    has_default: bool = False  # only of an enum
    size: int = 0
    branches: "list[Node]" = field(
        default_factory=list
    )  # of a union; for an array or map the one element type

    @property
    def simple_name(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(slots=True, eq=False)
class Field:
    name: str
    aliases: frozenset[str]
    type: Node
    has_default: bool


def parse(definition: bytes) -> Node:
    """The definition's root type.  Raises InvalidSchema."""
    return _Parser().parse(load_json(definition), "", 0)


def load_json(definition: bytes) -> Any:
    """The JSON value of `definition`.  Raises InvalidSchema."""
    try:
        return json.loads(definition)
    except (ValueError, RecursionError) as error:
        raise InvalidSchema(f"the schema definition is not JSON: {str(error)[:200]}") from None


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, Node] = {}
        self._count = 0

    def parse(self, content: Any, namespace: str, depth: int) -> Node:
        self._count += 1
        if self._count > NODES_MAX or depth > DEPTH_MAX:
            raise InvalidSchema(f"a schema definition has at most {NODES_MAX} types, {DEPTH_MAX} deep")
        if isinstance(content, str):
            return self._reference(content, namespace)
        if isinstance(content, list):
            return self._union(content, namespace, depth)
        if not isinstance(content, dict):
            raise InvalidSchema(f"no type: {str(content)[:100]}")
        kind = content.get("type")
        if isinstance(kind, (dict, list)):
            return self.parse(kind, namespace, depth + 1)
        if not isinstance(kind, str):
            raise InvalidSchema("a type has no type")
        match kind:
            case "array":
                return Node(kind, branches=[self.parse(_member(content, "items"), namespace, depth + 1)])
            case "map":
                return Node(kind, branches=[self.parse(_member(content, "values"), namespace, depth + 1)])
            case "record" | "error" | "enum" | "fixed":
                return self._named_type(kind, content, namespace, depth)
        return self._reference(kind, namespace)

    def _reference(self, name: str, namespace: str) -> Node:
        if name in PRIMITIVES:
            return Node(name)
        found = self._named.get(_full(name, namespace)) or self._named.get(name)
        if found is None:
            raise InvalidSchema(f"undefined name: {name[:200]!r}")
        return found

    def _union(self, content: list[Any], namespace: str, depth: int) -> Node:
        branches = [self.parse(one, namespace, depth + 1) for one in content]
        seen = set()
        for branch in branches:
            if branch.kind == "union":
                raise InvalidSchema("a union is directly inside a union")
            identity = branch.name or branch.kind
            if identity in seen:
                raise InvalidSchema(f"{identity[:200]} is in a union twice")
            seen.add(identity)
        return Node("union", branches=branches)

    def _named_type(self, kind: str, content: Mapping[str, Any], namespace: str, depth: int) -> Node:
        space = content.get("namespace")
        if isinstance(space, str):
            namespace = space
        name = _full(_name(content), namespace)
        if name in self._named:
            raise InvalidSchema(f"{name[:200]} is defined twice")
        namespace = name.rpartition(".")[0]
        aliases = frozenset(_full(alias, namespace) for alias in _names(content, "aliases"))
        node = self._named[name] = Node("record" if kind == "error" else kind, name, aliases)
        match kind:
            case "enum":
                symbols = _names(content, "symbols")
                if len(set(symbols)) != len(symbols):
                    raise InvalidSchema(f"a symbol of {name[:200]} is there twice")
                node.symbols = frozenset(symbols)
                node.has_default = content.get("default") is not None
                if node.has_default and content["default"] not in node.symbols:
                    raise InvalidSchema(f"the default of {name[:200]} is not one of its symbols")
            case "fixed":
                size = content.get("size")
                if isinstance(size, bool) or not isinstance(size, int) or size < 0:
                    raise InvalidSchema(f"{name[:200]} has no size")
                node.size = size
            case _:
                node.fields = list(self._fields(content, namespace, depth))
                if len({one.name for one in node.fields}) != len(node.fields):
                    raise InvalidSchema(f"a field of {name[:200]} is there twice")
        return node

    def _fields(self, content: Mapping[str, Any], namespace: str, depth: int) -> Iterator[Field]:
        listed = content.get("fields")
        if not isinstance(listed, list):
            raise InvalidSchema("a record has no fields")
        for one in listed:
            if not isinstance(one, dict):
                raise InvalidSchema("a field is no object")
            kind = self.parse(_member(one, "type"), namespace, depth + 1)
            yield Field(_name(one), frozenset(_names(one, "aliases")), kind, "default" in one)


def _member(content: Mapping[str, Any], name: str) -> Any:
    if name not in content:
        raise InvalidSchema(f"a type has no {name}")
    return content[name]


def _name(content: Mapping[str, Any]) -> str:
    name = content.get("name")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidSchema(f"illegal name: {str(name)[:200]!r}")
    return name


def _names(content: Mapping[str, Any], member: str) -> list[str]:
    names = content.get(member, [])
    if not isinstance(names, list) or not all(isinstance(one, str) and _NAME.fullmatch(one) for one in names):
        raise InvalidSchema(f"illegal {member}")
    return names


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def why_unreadable(reader: Node, writer: Node) -> str | None:
    """The reason, in a few words, why `reader` cannot read everything that `writer` writes; None if it can."""
    return _Resolution().why(reader, writer)


class _Resolution:
    """Compares types.  A pair that is being compared counts as readable, because recursive types return to it."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], str | None] = {}

    def why(self, reader: Node, writer: Node) -> str | None:
        key = (id(reader), id(writer))
        if key in self._seen:
            return self._seen[key]
        self._seen[key] = None
        reason = self._seen[key] = self._decide(reader, writer)
        return reason

    def _decide(self, reader: Node, writer: Node) -> str | None:
        if writer.kind == "union":
            for branch in writer.branches:
                reason = self.why(reader, branch)
                if reason is not None:
                    return reason
            return None
        if reader.kind == "union":
            if any(self.why(branch, writer) is None for branch in reader.branches):
                return None
            return f"reader union lacks writer type {writer.name or writer.kind}"
        if reader.kind != writer.kind:
            if writer.kind in _PROMOTED.get(reader.kind, ()):
                return None
            return f"reader type {reader.name or reader.kind} is not writer type {writer.name or writer.kind}"
        match reader.kind:
            case "array" | "map":
                return self.why(reader.branches[0], writer.branches[0])
            # Names of records do not count, as in the Java library that Pulsar uses: clients give versions different
            # names.
            case "enum" | "fixed":
                if reader.simple_name != writer.simple_name and writer.name not in reader.aliases:
                    return f"reader name {reader.name} is not writer name {writer.name}"
        match reader.kind:
            case "enum":
                unknown = writer.symbols - reader.symbols
                return (
                    f"reader enum {reader.name} lacks {sorted(unknown)[0]}"
                    if self._lacks(reader, unknown)
                    else None
                )
            case "fixed":
                return None if reader.size == writer.size else f"the size of {reader.name} differs"
            case "record":
                return self._decide_record(reader, writer)
        return None

    @staticmethod
    def _lacks(reader: Node, unknown: frozenset[str]) -> bool:
        return bool(unknown) and not reader.has_default

    def _decide_record(self, reader: Node, writer: Node) -> str | None:
        written = {one.name: one for one in writer.fields}
        for wanted in reader.fields:
            found = written.get(wanted.name)
            if found is None:
                found = next((written[alias] for alias in wanted.aliases if alias in written), None)
            if found is None:
                if wanted.has_default or (wanted.type.kind == "enum" and wanted.type.has_default):
                    continue
                return f"field {wanted.name} of {reader.name} has no default value and is not written"
            reason = self.why(wanted.type, found.type)
            if reason is not None:
                return reason
        return None
