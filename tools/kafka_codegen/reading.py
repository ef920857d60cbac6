"""Readers: one flat function per layout, nested structs inlined, neighbouring fixed fields in one
`unpack_from`.

The first byte (compact) or the whole (classic) of a length is read together with the fixed fields in front
of it, and so is the count of the tagged section, which is 0 nearly always.
"""

from kafka_codegen.common import (
    Source,
    StructNames,
    annotation,
    code_size,
    default_value,
    element_of,
    plain_fields,
    smallest_size,
    tagged_fields,
)
from magnetar.wire.kafka.schema.model import BYTES, INT32, STRING, UUID, Field, Primitive, Struct


class Reader:
    def __init__(self, structs: StructNames, version: int, flexible: bool, budget: str) -> None:
        self._structs = structs
        self._budget = budget  # the name of the constant that says how many elements the message may have
        self._version = version
        self._flexible = flexible
        self._out = Source()
        self._codes: list[str] = []
        self._targets: list[str] = []
        self._ordinal = 0

    def function(self, struct: Struct) -> list[str]:
        """The body of `(buffer, position) -> (message, position behind it)`."""
        body = Source()
        expression = self._struct(struct)
        self._flush()
        if any("end - position" in line for line in self._out.lines):
            body.add("end = len(buffer)")
        if any("left" in line for line in self._out.lines):
            body.add(f"left = {self._budget}")
        body.lines += self._out.lines
        body.add(f"return {expression}, position")
        return body.lines

    # fixed fields

    def _fixed(self, code: str, target: str) -> None:
        self._codes.append(code)
        self._targets.append(target)

    def _flush(self) -> None:
        codes, targets = self._codes, self._targets
        if not codes:
            return
        size = sum(map(code_size, codes))
        if codes == ["B"]:
            self._out.add(f"{targets[0]} = buffer[position]")
        elif len(codes) == 1:
            self._out.add(f"({targets[0]},) = {self._structs.unpack(codes)}(buffer, position)")
        else:
            self._out.add(f"{', '.join(targets)} = {self._structs.unpack(codes)}(buffer, position)")
        self._out.add(f"position += {size}")
        self._codes, self._targets = [], []

    # structs

    def _struct(self, struct: Struct) -> str:
        """Read the fields; the result is the expression that builds the object."""
        suffix = f"_{self._ordinal}"
        self._ordinal += 1
        version = self._version
        present: set[str] = set()
        for field in plain_fields(struct.fields, version):
            self._value(field, field.name + suffix, f"{struct.name}.{field.name}")
            present.add(field.name)
        if self._flexible:
            known = tagged_fields(struct.fields, version)
            self._tags(struct, known, suffix)
            present.update(field.name for field in known)
        arguments = [
            field.name + suffix if field.name in present else default_value(field) for field in struct.fields
        ]
        while arguments and struct.fields[len(arguments) - 1].name not in present:
            arguments.pop()  # the class has the same default
        return f"{struct.name}({', '.join(arguments)})"

    def _tags(self, struct: Struct, known: list[Field], suffix: str) -> None:
        out, count = self._out, f"tags{suffix}"
        self._fixed("B", count)
        self._flush()
        for field in known:
            out.add(f"{field.name}{suffix}: {annotation(field)} = {default_value(field)}")
        out.add(f"if {count}:")
        out.depth += 1
        if not known:
            out.add(f"position, left = skip_tags(buffer, position, {count}, left)")
            out.depth -= 1
            return
        out.add(f"{count}, position, left = tag_count(buffer, position, {count}, left)")
        out.add(f"for _ in range({count}):")
        out.depth += 1
        out.add(f"tag, position, stop{suffix} = tag_header(buffer, position)")
        for i, field in enumerate(known):
            out.add(f"{'el' if i else ''}if tag == {field.tag}:")
            out.depth += 1
            label = f"{struct.name}.{field.name}"
            self._value(field, field.name + suffix, label, declared=True)
            self._flush()
            out.add(f"if position != stop{suffix}:")
            out.add(f'    bad_tag("{label}")')
            out.depth -= 1
        out.add("else:")
        out.add(f"    position = stop{suffix}")
        out.depth -= 2

    # one value

    def _value(self, field: Field, target: str, label: str, *, declared: bool = False) -> None:
        """Read one field into the local `target`; `declared`: the local has its type and a value already."""
        nullable = self._version in field.nullable
        element = element_of(field.type)
        if element is not None:
            self._array(element, target, label, None if declared else annotation(field), nullable)
        elif isinstance(field.type, Struct):
            self._nested(field.type, target, annotation(field), nullable, declared)
        elif isinstance(field.type, Primitive) and field.type.code:
            self._fixed(field.type.code, target)
        elif isinstance(field.type, Primitive):
            self._bytes(field.type, target, label, None if declared else annotation(field), nullable)

    def _nested(self, struct: Struct, target: str, type_text: str, nullable: bool, declared: bool) -> None:
        out = self._out
        if not nullable:
            expression = self._struct(struct)
            self._flush()
            out.add(f"{target} = {expression}")
            return
        self._fixed("b", "present")
        self._flush()
        out.add(f"{target} = None" if declared else f"{target}: {type_text} = None")
        out.add("if present >= 0:")
        out.depth += 1
        expression = self._struct(struct)
        self._flush()
        out.add(f"{target} = {expression}")
        out.depth -= 1

    def _length(self, classic_code: str, tail: str) -> None:
        self._fixed("B" if self._flexible else classic_code, "n")
        self._flush()
        if self._flexible:
            self._out.add("if n > 127:")
            self._out.add(f"    n, position = {tail}(buffer, position, n)")

    def _refuse_null(self, label: str, refuse: str = "bad_length") -> None:
        if self._flexible:
            self._out.add("if n == 0:")
            self._out.add(f'    {refuse}("{label}", -1)')
        else:
            self._out.add("if n < 0:")
            self._out.add(f'    {refuse}("{label}", n)')

    def _begin_nullable(self, target: str, type_text: str | None) -> None:
        self._out.add(f"{target}: {type_text} = None" if type_text else f"{target} = None")
        self._out.add("if n:" if self._flexible else "if n >= 0:")
        self._out.depth += 1

    def _end_nullable(self, label: str) -> None:
        self._out.depth -= 1
        if not self._flexible:
            self._out.add("elif n != -1:")
            self._out.add(f'    bad_length("{label}", n)')

    def _bytes(
        self, type_: Primitive, target: str, label: str, type_text: str | None, nullable: bool
    ) -> None:
        out = self._out
        if type_ is STRING:
            self._length("h", "string_tail")
        else:
            self._length("i", "varint_tail")
        if nullable:
            self._begin_nullable(target, type_text)
        else:
            self._refuse_null(label)
        out.add("stop = position + n - 1" if self._flexible else "stop = position + n")
        if type_ is STRING:
            out.add(f'{target} = str(buffer[position:stop], "utf-8")')
        elif type_ is BYTES:
            out.add(f"{target} = bytes(buffer[position:stop])")
        else:
            out.add(f"{target} = buffer[position:stop]")
        out.add("position = stop")
        if nullable:
            self._end_nullable(label)

    def _array(
        self, element: Primitive | Struct, target: str, label: str, type_text: str | None, nullable: bool
    ) -> None:
        out = self._out
        self._length("i", "varint_tail")
        if nullable:
            self._begin_nullable(target, type_text)
        else:
            self._refuse_null(label)
        if self._flexible:
            out.add("n -= 1")
        smallest = smallest_size(element, self._version, self._flexible, False)
        out.add("left -= n")
        size = f"n * {smallest}" if smallest > 1 else "n"
        out.add(f"if {size} > end - position or left < 0:")
        out.add(f'    bad_count("{label}", n)')
        if element is INT32:
            out.add(f"{target} = read_int32s(buffer, position, n)")
            out.add("position += 4 * n")
        elif isinstance(element, Primitive) and element.code:
            assert element is not UUID, "no message has an array of these: teach both sides when one does"
            out.add(f'{target} = read_numbers("{element.code}", buffer, position, n)')
            out.add(f"position += {element.size} * n" if element.size > 1 else "position += n")
        else:
            self._loop(element, target, label, type_text if not nullable else None)
        if nullable:
            self._end_nullable(label)

    def _loop(self, element: Primitive | Struct, target: str, label: str, type_text: str | None) -> None:
        out = self._out
        out.add(f"{target}: {type_text.removesuffix(' | None')} = []" if type_text else f"{target} = []")
        out.add("for _ in paced(range(n)) if n >= PACED_MIN else range(n):")
        out.depth += 1
        if isinstance(element, Struct):
            expression = self._struct(element)
            self._flush()
            out.add(f"{target}.append({expression})")
        else:
            self._bytes(element, "item", label, None, False)
            out.add(f"{target}.append(item)")
        out.depth -= 1
