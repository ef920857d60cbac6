"""Settings of the brokers that were changed while they ran (KIP-226): which ones clients may change, and which values
are in effect.

    /broker-configs/all          {"v": 1, "configs": {"max.connections": "1000"}}
    /broker-configs/<node id>    of this one

A value for a node replaces the value for all, and that replaces the value with which the server was started.  A process
is one server, however many nodes it has: if it has several, clients can set nothing for one of them.  A change takes
effect once it is durable.
"""

import json
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeAlias

from magnetar.base.config import format_value
from magnetar.base.server_key import ServerKey
from magnetar.base.settings_connections import (
    DYNAMIC_NAMES,
    OWN_NAMES,
    ConnectionRules,
    connection_rules,
    shut_out,
)
from magnetar.base.settings_listener import PREFIX, own_key
from magnetar.base.settings_table import SERVER_KEYS
from magnetar.broker.policy.errors import InvalidConfig
from magnetar.metadata.store import Delete, MetadataStore, Put

Texts: TypeAlias = dict[str, str]

ALL: Final = "all"
_ROOT: Final = "/broker-configs/"


def dynamic_key(name: str) -> ServerKey | None:
    """The key of a setting that may be changed while the server runs; None for all others."""
    if name in DYNAMIC_NAMES:
        return SERVER_KEYS[name]
    place = own_key(name)
    if place is None or place[1] not in OWN_NAMES or name != own_name(*place):
        return None
    return SERVER_KEYS[place[1]]


def own_name(listener: str, key: str) -> str:
    """What a key is called that a listener has a value of its own for."""
    return f"{PREFIX}{listener.lower()}.{key}"


class BrokerConfigs:
    """See the module's text.

    `started_with` has the keys that were set, and `own_started_with` those that were set for one listener, by
    (listener, key).  `node_id` is the node's id, if there is only one node.  `listeners` are the names of the listeners
    through which changes come.  `govern` is called with what holds.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        started_with: Mapping[str, str],
        own_started_with: Mapping[tuple[str, str], str],
        node_id: int | None,
        listeners: Collection[str],
        govern: Callable[[ConnectionRules], None],
    ) -> None:
        self._metadata = metadata
        self._started_with = {key: text for key, text in started_with.items() if key in DYNAMIC_NAMES}
        self._started_with |= {own_name(*place): text for place, text in own_started_with.items()}
        self._node_id = node_id
        self._listeners = listeners
        self._govern = govern
        self._configs: dict[str, Texts] = {}

    async def load(self) -> None:
        for path, one in await self._metadata.scan(_ROOT):
            self._configs[path.removeprefix(_ROOT)] = json.loads(one.value)["configs"]
        self._apply()

    def of_all(self) -> Mapping[str, str]:
        """What is set for all nodes."""
        return self._configs.get(ALL, {})

    def of_node(self) -> Mapping[str, str]:
        """What is set for the node, if there is one only."""
        return self._configs.get(str(self._node_id), {})

    def check(self, texts: Mapping[str, str], *, for_all: bool) -> None:
        """Raises InvalidConfig: with these set for all nodes, or for the only one, no client could connect any more."""
        rules = self._rules(texts, self.of_node()) if for_all else self._rules(self.of_all(), texts)
        reason = shut_out(rules, self._listeners)
        if reason is not None:
            raise InvalidConfig(reason)

    def _rules(self, of_all: Mapping[str, str], of_node: Mapping[str, str]) -> ConnectionRules:
        texts = {**self._started_with, **of_all, **of_node}
        plain = {name: text for name, text in texts.items() if name in DYNAMIC_NAMES}
        own = {place: text for name, text in texts.items() if (place := own_key(name)) is not None}
        return connection_rules(plain, own)

    async def change(self, texts: Mapping[str, str], *, for_all: bool) -> None:
        """From now on these are set for all nodes, or for the only one; MetadataError when it cannot be stored.

        The texts are `checked` ones.
        """
        name = ALL if for_all else str(self._node_id)
        path = f"{_ROOT}{name}"
        document = json.dumps({"v": 1, "configs": dict(texts)}).encode()
        await self._metadata.commit([Put(path, document) if texts else Delete(path)])
        self._configs[name] = dict(texts)
        self._apply()

    def _apply(self) -> None:
        self._govern(self._rules(self.of_all(), self.of_node()))


def checked(name: str, key: ServerKey, text: str) -> str:
    """The canonical text of a value.  Raises InvalidConfig."""
    try:
        return format_value(key.parse(text)) or ""
    except ValueError as error:
        raise InvalidConfig(f"Invalid value {text[:200]} for configuration {name}: {error}") from None
