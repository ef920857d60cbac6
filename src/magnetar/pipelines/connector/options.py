"""Options of a data source: which there are, and what they mean.

No option is ignored silently: if one is unknown, malformed or contradictory, that is an `OptionError`, and a table
lists those without effect.  Spark shows an exception of a Python data source with its class and text.  So the text is
the message: one sentence, which names the option or the column and the next step.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, TypeVar

from magnetar.base.errors import ConfigError
from magnetar.client.login import Server

INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1

NAME_PREFIX: Final = "transactionalIdPrefix"  # of the sink: what its transactions are called
CONTEXT: Final = "context"  # of the source and the sink: where the server is and how to log in there, by name

T = TypeVar("T")
Default = TypeVar("Default", int, None)


def source_options(server: Server) -> dict[str, str]:
    """The options with which the source reaches a server.  Spark's plans and logs show them: a context's name is no
    secret.
    """
    return {CONTEXT: server.context} if server.context else {"admin.url": server.url}


def sink_options(bootstrap: str, context: str) -> dict[str, str]:
    """The options with which the sink reaches brokers; an empty `context` if these require no login."""
    login = {CONTEXT: context} if context else {}
    return {"kafka.bootstrap.servers": bootstrap, **login}


class OptionError(ConfigError):
    """An option is unknown, malformed, or contradicts another one."""


class SchemaError(ConfigError):
    """A column does not exist, is missing, or has the wrong type."""


class Given(dict[str, str]):
    """The options of one query under their own names; every method raises OptionError."""

    def text(self, name: str) -> str | None:
        """The text without the space around it, never empty; None if the option is not given."""
        value = self.get(name)
        if value is None:
            return None
        if not value.strip():
            raise OptionError(f"option {name} is empty; give it a value or leave it out")
        return value.strip()

    def number(self, name: str, default: Default, *, least: int, most: int = INT64_MAX) -> int | Default:
        text = self.text(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise OptionError(f"option {name}: {text!r} is not a whole number of at least {least}")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        return self.one_of(name, {"true": True, "false": False}, default=str(default).lower())

    def one_of(self, name: str, values: Mapping[str, T], *, default: str) -> T:
        """What a word means; upper and lower case do not matter."""
        text = (self.text(name) or default).lower()
        if text not in values:
            raise OptionError(f"option {name}: {text!r} is none of {', '.join(values)}")
        return values[text]


@dataclass(frozen=True, slots=True)
class Names:
    """The known options for reading, or for writing.

    doing                 "reading" or "writing"
    own                   what has an effect; settings of Kafka's client begin with `kafka.`
    without_effect        what is accepted, and not missed
    kafka_without_effect  the same, of Kafka's client, without `kafka.`
    kafka_refused         its settings that cannot be honoured, without `kafka.`, to what to do instead
    kafka_client          "consumer" or "producer"
    instead_of_tls        what to do instead of encryption and authentication
    of_opposite           what only the opposite takes, in lower case
    opposite              what that is called
    reference             the page that lists all
    """

    doing: str
    own: Collection[str]
    without_effect: Collection[str]
    kafka_without_effect: Collection[str]
    kafka_refused: Mapping[str, str]
    kafka_client: str
    instead_of_tls: str
    of_opposite: Collection[str]
    opposite: str
    reference: str

    def check(self, options: Mapping[str, str]) -> Given:
        """The options, whose names are written in any case, under their own names.

        Raises:
            OptionError: one is not known, or cannot be honoured.
        """
        known = {name.lower(): name for name in (*self.own, *self.without_effect)}
        given = Given()
        for key, value in options.items():
            lower = key.lower()
            if lower in known:
                given[known[lower]] = value
            elif lower in self.of_opposite:
                raise OptionError(f"option {key} is one of {self.opposite}; leave it out when {self.doing}")
            elif lower.startswith("kafka."):
                self._check_kafka(lower.removeprefix("kafka."), value)
            else:
                near = get_close_matches(lower, known, n=1)
                raise OptionError(
                    f"option {key} is not known; "
                    + (f"did you mean {known[near[0]]}?" if near else f"{self.reference} lists all there are")
                )
        return given

    def _check_kafka(self, name: str, value: str) -> None:
        """Check a setting of Kafka's client that is not one of our own."""
        if name in self.kafka_without_effect:
            return
        if name in self.kafka_refused:
            raise OptionError(f"option kafka.{name} cannot be honoured: {self.kafka_refused[name]}")
        if name == "security.protocol" and value.upper() == "PLAINTEXT":
            return
        if name.startswith(("sasl.", "ssl.")) or name == "security.protocol":
            raise OptionError(f"option kafka.{name} cannot be honoured: {self.instead_of_tls}")
        own = [each.removeprefix("kafka.") for each in self.own if each.startswith("kafka.")]
        near = get_close_matches(name, [*own, *self.kafka_without_effect], n=1)
        raise OptionError(
            f"option kafka.{name} is not a setting of Kafka's {self.kafka_client}; "
            + (f"did you mean kafka.{near[0]}?" if near else "leave it out")
        )
