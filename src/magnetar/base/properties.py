"""Java's properties files, as Kafka's and KoP's configuration is written (`java.util.Properties.load`).

Logical lines hold `key=value`, `key: value` or `key value`.  Lines that begin with `#` or `!` are comments.  A line
that ends in an odd number of backslashes continues in the next line, whose leading white space does not count.  `\\t
\\n \\r \\f \\uXXXX` are escapes; a backslash before anything else stands for that character.  Unlike Java we read
UTF-8.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from magnetar.base.errors import ConfigError

FILE_BYTES_MAX: Final = 1 << 20
_SPACE: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class Property:
    key: str
    value: str
    line: int  # counted from 1


def parse_properties(data: bytes, name: str) -> list[Property]:
    """Every property of a file, in order, also those that come twice.  `name` is the file's, for messages.

    Raises:
        ConfigError: the file is too large or not UTF-8, or an escape is malformed.
    """
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{name} is larger than {FILE_BYTES_MAX} bytes: this is no configuration file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not UTF-8 (byte {error.start}): save it as UTF-8") from None
    found = []
    for number, line in _logical_lines(text):
        end = _key_end(line)
        rest = line[end:].lstrip(_SPACE)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_SPACE)
        try:
            found.append(Property(_unescape(line[:end]), _unescape(rest), number))
        except ValueError as error:
            raise ConfigError(f"{name} line {number}: {error}") from None
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    pending = ""
    first = 0
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = line.lstrip(_SPACE)
        if not first:
            if not line or line[0] in "#!":
                continue
            first = number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending += line[:-1]
            continue
        yield first, pending + line
        pending, first = "", 0
    if first:
        yield first, pending


def _key_end(line: str) -> int:
    escaped = False
    for index, char in enumerate(line):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char in "=:" or char in _SPACE:
            return index
    return len(line)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out = []
    index = 0
    while index < len(text):
        char = text[index]
        index += 1
        if char != "\\" or index == len(text):
            out.append(char)
            continue
        char = text[index]
        index += 1
        if char != "u":
            out.append(_ESCAPES.get(char, char))
            continue
        digits = text[index : index + 4]
        if len(digits) != 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            raise ValueError("\\u must be followed by four hexadecimal digits")
        out.append(chr(int(digits, 16)))
        index += 4
    # Characters beyond U+FFFF come as two escapes, one for each half of their UTF-16 form.
    try:
        return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError("\\u escapes do not make up a whole character") from None
