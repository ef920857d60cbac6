"""The form of a server's configuration key."""

from dataclasses import dataclass
from enum import Enum

from magnetar.base.config import ConfigKey, Value


class Section(Enum):
    NETWORK = "Network"
    TLS = "TLS"
    SASL = "SASL"
    AUTHENTICATION = "Who clients of Pulsar and HTTP are"
    AUTHORIZATION = "Authorization"
    AUDIT = "Audit log"
    NODES = "Nodes"
    STORAGE = "Storage"
    TOPICS = "Topics"
    TOPIC_DEFAULTS = "Defaults of topics"
    REQUESTS = "Requests and connections"
    GROUPS = "Consumer groups and producers"
    PIPELINES = "Pipelines"
    LOGGING = "Logging"
    COMPATIBILITY = "Accepted, without effect"


@dataclass(frozen=True, slots=True)
class Alias:
    """Another name of a key; its number counts units of `unit`."""

    name: str
    unit: int = 1


@dataclass(frozen=True, slots=True)
class ServerKey(ConfigKey):
    """A key of the server.  `no_effect` says why nothing follows from it, if so.

    `default` None means that something else decides; `default_words` then says what.  `may_be_empty`: nothing at all
    can be set as well, whatever the type, and is None.
    """

    section: Section = Section.COMPATIBILITY
    aliases: tuple[Alias, ...] = ()
    no_effect: str = ""
    default_words: str = ""
    may_be_empty: bool = False

    def parse(self, text: str) -> Value:
        if self.may_be_empty and not text.strip():
            return None
        return ConfigKey.parse(self, text)


def aliases(*names: str) -> tuple[Alias, ...]:
    """Other names of the same unit."""
    return tuple(Alias(name) for name in names)
