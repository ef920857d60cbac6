"""What the reading and the writing side of the generator share: types, defaults, text in the making."""

from magnetar.wire.kafka.schema.model import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    RECORD_PARTS,
    RECORDS,
    STRING,
    UNSET,
    UUID,
    Field,
    FieldType,
    Primitive,
    Struct,
)

_CODE_LETTERS = {"?": "o", "16s": "u", "x": "x"}


class Source:
    """Lines of Python with an indent."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)


class StructNames:
    """The module-level `struct` methods that one generated module uses: `_unpack_hi`, `_pack_Bx`..."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[str, str]] = {}

    def _name(self, verb: str, method: str, codes: list[str]) -> str:
        name = f"_{verb}_{''.join(_CODE_LETTERS.get(code, code) for code in codes)}"
        self._used[name] = ("".join(codes), method)
        return name

    def unpack(self, codes: list[str]) -> str:
        return self._name("unpack", "unpack_from", codes)

    def pack(self, codes: list[str]) -> str:
        return self._name("pack", "pack", codes)

    def definitions(self) -> list[str]:
        return [
            f'{name} = struct.Struct(">{codes}").{method}'
            for name, (codes, method) in sorted(self._used.items())
        ]


def element_of(type_: FieldType) -> Primitive | Struct | None:
    """What an array holds, None for anything else."""
    return type_[0] if isinstance(type_, list) else None


def code_size(code: str) -> int:
    return {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "q": 8, "d": 8, "16s": 16}[code]


def is_tagged(field: Field, version: int) -> bool:
    return version in field.tagged


def plain_fields(fields: tuple[Field, ...], version: int) -> list[Field]:
    """The fields that `version` carries in the body, in order."""
    return [field for field in fields if version in field.versions and not is_tagged(field, version)]


def tagged_fields(fields: tuple[Field, ...], version: int) -> list[Field]:
    """The fields that `version` carries in the tagged section, by tag."""
    chosen = [field for field in fields if version in field.versions and is_tagged(field, version)]
    return sorted(chosen, key=lambda field: field.tag)


def smallest_size(type_: FieldType, version: int, flexible: bool, nullable: bool) -> int:
    """The fewest bytes that a value of `type_` can take."""
    if isinstance(type_, list):
        return 1 if flexible else 4
    if isinstance(type_, Struct):
        if nullable:
            return 1
        size = sum(
            smallest_size(field.type, version, flexible, version in field.nullable)
            for field in plain_fields(type_.fields, version)
        )
        return size + flexible
    if type_.code:
        return type_.size
    if flexible:
        return 1
    return 2 if type_ is STRING else 4


def annotation(field: Field) -> str:
    """The Python type of the field over all versions."""
    text = _type_text(field.type)
    optional = field.nullable.high >= 0 or field.type in (RECORDS, RECORD_PARTS) or optional_struct(field)
    return f"{text} | None" if optional else text


def optional_struct(field: Field) -> bool:
    """A tagged struct is None when absent: cheaper than an object of defaults for every partition."""
    return isinstance(field.type, Struct) and field.tag >= 0


def _type_text(type_: FieldType) -> str:
    if isinstance(type_, list):
        return f"list[{_type_text(type_[0])}]"
    if isinstance(type_, Struct):
        return type_.name
    if type_ is RECORDS:
        return "Buffer"
    if type_ is RECORD_PARTS:
        return "Buffer | list[Buffer]"
    if type_ in (BYTES, UUID):
        return "bytes"
    if type_ is STRING:
        return "str"
    return {BOOLEAN: "bool", FLOAT64: "float"}.get(type_, "int")


def default_value(field: Field) -> str:
    """The default as an expression for a reader."""
    if field.default is not UNSET:
        return repr(field.default)
    if isinstance(field.type, list):
        return "[]"
    if isinstance(field.type, Struct):
        return "None" if optional_struct(field) else f"{field.type.name}()"
    if field.type in (RECORDS, RECORD_PARTS):
        return "None"
    if field.type is UUID:
        return "ZERO_UUID"
    return {BOOLEAN: "False", FLOAT64: "0.0", STRING: '""', BYTES: 'b""'}.get(field.type, "0")


def parameter_default(field: Field) -> str:
    """The default of the parameter of `__init__`: what is mutable is made anew for each message."""
    value = default_value(field)
    return "NEW" if _is_mutable(value) else value


def assigned_value(field: Field) -> str:
    """What `__init__` makes of the parameter."""
    value = default_value(field)
    return f"{value} if {field.name} is NEW else {field.name}" if _is_mutable(value) else field.name


def _is_mutable(default: str) -> bool:
    return default == "[]" or default.endswith("()")
