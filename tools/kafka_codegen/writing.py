"""Writers: one flat function per layout, the mirror of the readers.

Fixed fields, classic lengths, the one byte of a short compact length and empty tagged sections gather in
one `pack`; records are appended to the output as they are.
"""

from kafka_codegen.common import (
    Source,
    StructNames,
    default_value,
    element_of,
    optional_struct,
    plain_fields,
    tagged_fields,
)
from magnetar.wire.kafka.schema.model import (
    INT32,
    RECORD_PARTS,
    RECORDS,
    STRING,
    Field,
    Primitive,
    Struct,
)


class Writer:
    def __init__(self, structs: StructNames, version: int, flexible: bool) -> None:
        self._structs = structs
        self._version = version
        self._flexible = flexible
        self._out = Source()
        self._add = "add"
        self._extend = "out"
        self._codes: list[str] = []
        self._values: list[str] = []
        self._ordinal = 0

    def function(self, struct: Struct) -> list[str]:
        """The body of `(message, out) -> None`."""
        self._struct(struct, "message")
        self._flush()
        body = Source()
        lines = self._out.lines
        if any(line.lstrip().startswith("add(") for line in lines):
            body.add("add = out.append")
        return (body.lines + lines) if lines else ["    return"]

    # fixed fields

    def _fixed(self, code: str, value: str | None) -> None:
        self._codes.append(code)
        if value is not None:
            self._values.append(value)

    def _packed(self, extra: str | None = None) -> str:
        """The call that packs what has gathered, and `extra` as one more byte; empty if there is nothing."""
        codes = self._codes + (["B"] if extra else [])
        if not codes:
            return ""
        if codes == ["x"]:
            return 'b"\\0"'
        values = self._values + ([extra] if extra else [])
        return f"{self._structs.pack(codes)}({', '.join(values)})"

    def _clear(self) -> None:
        self._codes, self._values = [], []

    def _flush(self) -> None:
        if self._codes:
            self._out.add(f"{self._add}({self._packed()})")
            self._clear()

    def _compact(self, length: str, body: str = "") -> None:
        """What has gathered, then `length` as a varint, then `body`, as one part."""
        gathered = self._packed()
        long = f"{gathered} + varint({length})" if gathered else f"varint({length})"
        behind = f" + {body}" if body else ""
        if gathered:
            self._out.add(f"if {length} < 128:")
            self._out.add(f"    {self._add}({self._packed(length)}{behind})")
            self._out.add("else:")
            self._out.add(f"    {self._add}({long}{behind})")
        else:
            self._out.add(f"{self._add}({long}{behind})")
        self._clear()

    def _classic(self, code: str, length: str, body: str = "") -> None:
        self._fixed(code, length)
        if body:
            self._out.add(f"{self._add}({self._packed()} + {body})")
            self._clear()

    # structs

    def _struct(self, struct: Struct, source: str) -> None:
        for field in plain_fields(struct.fields, self._version):
            self._value(field, f"{source}.{field.name}")
        if self._flexible:
            self._tags(tagged_fields(struct.fields, self._version), source)

    def _tags(self, known: list[Field], source: str) -> None:
        if not known:
            self._fixed("x", None)
            return
        out = self._out
        gathered = self._packed()
        conditions = [self._is_set(field, f"{source}.{field.name}") for field in known]
        out.add(f"if {' or '.join(conditions)}:")
        out.depth += 1
        if gathered:
            out.add(f"{self._add}({gathered})")
        saved = self._codes, self._values
        outer = self._add, self._extend
        self._clear()
        self._ordinal += 1
        section, parts = f"section_{self._ordinal}", f"parts_{self._ordinal}"
        out.add(f"{section}: list[bytes] = []")
        out.add(f"{parts}: list[Buffer] = []")
        for field, condition in zip(known, conditions, strict=True):
            out.add(f"if {condition}:")
            out.depth += 1
            self._add, self._extend = f"{parts}.append", parts
            # The condition has ruled None out, except where None is a value of its own.
            self._value(field, f"{source}.{field.name}", known_present=True)
            self._flush()
            out.add(f"{section}.append(tagged({field.tag}, {parts}))")
            out.add(f"{parts}.clear()")
            out.depth -= 1
        self._add, self._extend = outer
        out.add(f"{self._add}(varint(len({section})))")
        out.add(f"{self._extend} += {section}")
        out.depth -= 1
        out.add("else:")
        self._codes, self._values = [*saved[0], "x"], saved[1]
        out.add(f"    {self._add}({self._packed()})")
        self._clear()

    def _is_set(self, field: Field, source: str) -> str:
        default = default_value(field)
        if default == "None":
            return f"{source} is not None"
        if default in ("[]", '""', 'b""', "False", "0"):
            return source
        return f"{source} != {default}"

    # one value

    def _value(self, field: Field, source: str, *, known_present: bool = False) -> None:
        nullable = self._version in field.nullable
        sometimes_null = field.nullable.high >= 0 or optional_struct(field)
        type_ = field.type
        if isinstance(type_, Primitive) and type_.code:
            self._fixed(type_.code, source)
            return
        if type_ in (RECORDS, RECORD_PARTS):
            self._records(source, parts=type_ is RECORD_PARTS)
            return
        out = self._out
        local = f"value_{self._ordinal}"
        self._ordinal += 1
        out.add(f"{local} = {source}")
        if sometimes_null and (not nullable or known_present):
            # The class allows null because another version does.
            out.add(
                f'assert {local} is not None, "{source.partition(".")[2]} cannot be null in v{self._version}"'
            )
        nullable = nullable and not known_present
        element = element_of(type_)
        if element is not None:
            self._array(element, local, nullable)
        elif isinstance(type_, Struct):
            self._nested(type_, local, nullable, known_present)
        else:
            self._bytes(type_, local, nullable)

    def _nested(self, struct: Struct, local: str, nullable: bool, known_present: bool) -> None:
        out = self._out
        # A nullable struct starts with a byte: -1 for null, 1 for a value.
        if not nullable:
            self._struct(struct, local)
            return
        self._flush()
        out.add(f"if {local} is None:")
        out.add(f'    {self._add}(b"\\xff")')
        out.add("else:")
        out.depth += 1
        out.add(f'{self._add}(b"\\x01")')
        self._struct(struct, local)
        self._flush()
        out.depth -= 1

    def _bytes(self, type_: object, local: str, nullable: bool) -> None:
        out, code = self._out, "h" if type_ is STRING else "i"
        text = f"{local}.encode()" if type_ is STRING else local
        if self._flexible:
            if nullable:
                out.add(f'data = b"" if {local} is None else {text}')
                out.add(f"n = 0 if {local} is None else len(data) + 1")
            else:
                out.add(f"data = {text}")
                out.add("n = len(data) + 1")
            self._compact("n", "data")
        else:
            if nullable:
                out.add(f'data = b"" if {local} is None else {text}')
                self._classic(code, f"-1 if {local} is None else len(data)", "data")
            else:
                out.add(f"data = {text}")
                self._classic(code, "len(data)", "data")

    def _records(self, source: str, *, parts: bool) -> None:
        out = self._out
        local = f"value_{self._ordinal}"
        self._ordinal += 1
        plus = " + 1" if self._flexible else ""
        out.add(f"{local} = {source}")
        out.add(f"if {local} is None:")
        out.add(f"    n = {0 if self._flexible else -1}")
        if parts:
            out.add(f"elif isinstance({local}, list):")
            out.add(f"    n = sum(map(len, {local})){plus}")
        out.add("else:")
        out.add(f"    n = len({local}){plus}")
        if self._flexible:
            self._compact("n")
        else:
            self._fixed("i", "n")
            self._flush()
        if parts:
            out.add(f"if isinstance({local}, list):")
            out.add(f"    {self._extend} += {local}")
        out.add(f"{'elif' if parts else 'if'} {local} is not None:")
        out.add(f"    {self._add}({local})")

    def _array(self, element: Primitive | Struct, local: str, nullable: bool) -> None:
        out = self._out
        numbers = isinstance(element, Primitive) and bool(element.code)
        if nullable:
            null = 0 if self._flexible else -1
            out.add(f"n = {null} if {local} is None else len({local}){' + 1' if self._flexible else ''}")
        else:
            out.add(f"n = len({local}){' + 1' if self._flexible else ''}")
        data = ""
        if numbers and isinstance(element, Primitive):
            sequence = f"{local} or ()" if nullable else local
            packed = f'pack_numbers("{element.code}", {sequence})'
            data = f"pack_int32s({sequence})" if element is INT32 else packed
        if self._flexible:
            self._compact("n", data)
        else:
            self._classic("i", "n", data)
            self._flush()
        if numbers:
            return
        item = f"item_{self._ordinal}"
        self._ordinal += 1
        unpaced = f"{local} or ()" if nullable else local
        out.add(f"for {item} in paced({unpaced}) if n >= PACED_MIN else {unpaced}:")
        out.depth += 1
        if isinstance(element, Struct):
            self._struct(element, item)
            self._flush()
        else:
            self._bytes(element, item, False)
        out.depth -= 1
