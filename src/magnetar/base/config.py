"""What a configuration key is: its name, type, default and range, and how its text becomes a value.

Kafka's textual forms hold everywhere (properties file, environment, flags, AlterConfigs): numbers in decimal,
`true`/`false` in any case, lists separated by commas; white space around a value does not count.

Both tables of keys are made of these: the server's (`base/settings_table.py`) and the topics'
(`broker/policy/topic_config.py`).  Errors are `ValueError`s with half a sentence ("must be at least 1"); the caller
makes it a whole one.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
VALUE_CHARS_MAX: Final = 65_536  # no setting needs more; a topic's overrides must fit one metadata value

Value = bool | int | float | str | tuple[str, ...] | None


class ConfigType(IntEnum):
    """Kafka's types, with the numbers that DescribeConfigs sends (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


# What our own tools call the types; scripts read these words.
TYPE_WORDS: Final[Mapping[ConfigType, str]] = {
    ConfigType.BOOLEAN: "boolean",
    ConfigType.STRING: "string",
    ConfigType.INT: "int",
    ConfigType.LONG: "long",
    ConfigType.DOUBLE: "double",
    ConfigType.LIST: "list",
    ConfigType.PASSWORD: "password",
}


class ConfigSource(IntEnum):
    """Where a value comes from, with the numbers that DescribeConfigs sends (KIP-226)."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3  # of all brokers
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key.  `default` is text, as a user would write it; None means that there is none.

    `check` sees the parsed value and returns what is wrong with it, as the end of a sentence, or None.
    """

    name: str
    type: ConfigType
    default: str | None
    doc: str
    minimum: int | float | None = None
    maximum: int | float | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[Value], str | None] | None = None

    def parse(self, text: str) -> Value:
        """The value that `text` stands for.

        Raises:
            ValueError: half a sentence, such as "must be at least 1".
        """
        if len(text) > VALUE_CHARS_MAX:
            raise ValueError(f"is longer than {VALUE_CHARS_MAX} characters")
        text = text.strip()
        value: Value
        match self.type:
            case ConfigType.BOOLEAN:
                value = _boolean(text)
            case ConfigType.INT:
                value = _integer(text, INT_MAX)
            case ConfigType.LONG:
                value = _integer(text, LONG_MAX)
            case ConfigType.DOUBLE:
                value = _double(text)
            case ConfigType.LIST:
                value = tuple(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))
            case ConfigType.STRING | ConfigType.PASSWORD:
                value = text
        self._check_range(value)
        return value

    @property
    def allowed(self) -> str:
        """The range in words, for documentation; empty when the type says everything."""
        if self.choices:
            return ", ".join(self.choices)
        if self.minimum is not None and self.maximum is not None:
            return f"{self.minimum} to {self.maximum}"
        if self.minimum is not None:
            return f"at least {self.minimum}"
        return "" if self.maximum is None else f"at most {self.maximum}"

    def _check_range(self, value: Value) -> None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            below = self.minimum is not None and value < self.minimum
            above = self.maximum is not None and value > self.maximum
            if below or above:
                bounds = "from " + self.allowed if " to " in self.allowed else self.allowed
                raise ValueError(f"must be {bounds}")
        if self.choices:
            items = value if isinstance(value, tuple) else (value,)
            if any(item not in self.choices for item in items):
                raise ValueError(
                    f"must be {'among' if isinstance(value, tuple) else 'one of'} {self.allowed}"
                )
        problem = self.check(value) if self.check is not None else None
        if problem is not None:
            raise ValueError(problem)


def format_value(value: Value) -> str | None:
    """The text of a parsed value, in Kafka's canonical form; None stays None."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was probably meant to be."""
    found = difflib.get_close_matches(name[:200], known, n=1, cutoff=0.6)
    return found[0] if found else None


def _boolean(text: str) -> bool:
    match text.lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise ValueError("must be true or false")


def _integer(text: str, limit: int) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    # int() alone would also take underscores, digits of other scripts, and any length.
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 30:
        raise ValueError("must be a whole number")
    value = int(text)
    if not -limit - 1 <= value <= limit:
        raise ValueError(f"must be from {-limit - 1} to {limit}")
    return value


def _double(text: str) -> float:
    try:
        value = float(text) if "_" not in text else None
    except ValueError:
        value = None
    if value is None or value != value:
        raise ValueError("must be a number")
    return value
