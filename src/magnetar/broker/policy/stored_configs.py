"""Settings that things of one kind have of their own, by name: in memory, and in the metadata store.

    <root><name>    {"v": 1, "configs": {"consumer.session.timeout.ms": "50000"}}

A thing without settings has no row.  A change takes effect once it is durable.
"""

import json
from collections.abc import Callable, Mapping

from magnetar.base.config import ConfigKey, ConfigSource
from magnetar.broker.policy.model import ConfigEntry, ConfigSynonym
from magnetar.metadata.path_parts import escape, unescape
from magnetar.metadata.store import Delete, MetadataStore, Put


class StoredConfigs:
    """See the module's text.  `when_changed` gets the settings of a name, at the load and at each change."""

    def __init__(
        self, metadata: MetadataStore, root: str, when_changed: Callable[[str, Mapping[str, str]], None]
    ) -> None:
        self._metadata = metadata
        self._root = root
        self._when_changed = when_changed
        self._configs: dict[str, dict[str, str]] = {}

    async def load(self) -> None:
        for path, one in await self._metadata.scan(self._root):
            self._hold(unescape(path.removeprefix(self._root)), json.loads(one.value)["configs"])

    @property
    def names(self) -> list[str]:
        return list(self._configs)

    def of(self, name: str) -> Mapping[str, str]:
        return self._configs.get(name, {})

    def has_room(self, name: str, *, names_max: int, chars_max: int) -> bool:
        """Whether this name may have settings: it has some, or is short, and not too many others have."""
        return name in self._configs or (len(self._configs) < names_max and len(name) <= chars_max)

    async def change(self, name: str, configs: Mapping[str, str]) -> None:
        """From now on the name has these settings, or none.  Raises MetadataError."""
        path = self._root + escape(name)
        document = json.dumps({"v": 1, "configs": dict(configs)}).encode()
        await self._metadata.commit([Put(path, document) if configs else Delete(path)])
        self._hold(name, configs)

    def _hold(self, name: str, configs: Mapping[str, str]) -> None:
        if configs:
            self._configs[name] = dict(configs)
        else:
            self._configs.pop(name, None)
        self._when_changed(name, configs)


def entry_of(
    key: ConfigKey, own: Mapping[str, str], source: ConfigSource, default_name: str = ""
) -> ConfigEntry:
    """How one setting is described: its own value, of `source`, in front of the default.

    `default_name` is what the default is called where that is another name.
    """
    synonyms = [ConfigSynonym(default_name or key.name, key.default, ConfigSource.DEFAULT_CONFIG)]
    if key.name in own:
        synonyms.insert(0, ConfigSynonym(key.name, own[key.name], source))
    return ConfigEntry(key.name, synonyms[0].value, synonyms[0].source, key.type, key.doc, tuple(synonyms))
