"""Typed values of the texts that were given for settings; each key has checked its text before."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from magnetar.base.settings_table import SERVER_KEYS
from magnetar.base.settings_tls import Given


@dataclass(frozen=True, slots=True)
class Setting:
    """A given value: its canonical text, and where it was set."""

    text: str
    origin: str


class Values:
    """The values by type; a key that was not set has its default.

    `notices` gets a line for each key that has no effect.
    """

    def __init__(self, given: Mapping[str, Setting], notices: list[str]) -> None:
        self._given = given
        self._notices = notices

    def _look_up(self, key: str) -> Given:
        return Given(self._text(key), key)

    def _notice(self, keys: Collection[str], reason: str) -> None:
        """Add a notice for each of `keys` that was set: it has no effect."""
        given = ((name, setting) for name, setting in self._given.items() if name in keys)
        self._notices += [f"{setting.origin}: {name} has no effect: {reason}" for name, setting in given]

    def _text_or_none(self, name: str) -> str | None:
        setting = self._given.get(name)
        return SERVER_KEYS[name].default if setting is None else setting.text

    def _text(self, name: str) -> str:
        return self._text_or_none(name) or ""

    def _integer(self, name: str) -> int:
        value = SERVER_KEYS[name].parse(self._text(name))
        assert isinstance(value, int), name
        return value

    def _integer_or_none(self, name: str) -> int | None:
        """None if it was set to nothing, or was not set and has no default."""
        return self._integer(name) if self._text(name) else None

    def _boolean(self, name: str) -> bool:
        return self._text(name) == "true"

    def _list(self, name: str) -> tuple[str, ...]:
        value = SERVER_KEYS[name].parse(self._text(name))
        assert isinstance(value, tuple), name
        return value
