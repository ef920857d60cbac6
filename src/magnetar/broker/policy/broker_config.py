"""The broker's own configuration, as DescribeConfigs of a broker shows it.

Nothing of it can be changed while the server runs, so every entry is read-only.  Keys without effect are left
out unless they were set: what is shown is what holds.
"""

from collections.abc import Collection, Mapping

from magnetar.base.config import ConfigSource, ConfigType
from magnetar.base.settings_table import SERVER_KEYS
from magnetar.broker.policy.model import ConfigEntry, ConfigSynonym


def describe_broker(given: Mapping[str, str], names: Collection[str] | None = None) -> list[ConfigEntry]:
    """Every key (or those of `names`), in order of name.  `given` has the texts that were set."""
    return [
        _entry(name, given.get(name))
        for name, key in sorted(SERVER_KEYS.items())
        if (name in given or not key.no_effect) and (names is None or name in names)
    ]


def _entry(name: str, text: str | None) -> ConfigEntry:
    key = SERVER_KEYS[name]
    default = ConfigSynonym(name, key.default, ConfigSource.DEFAULT_CONFIG)
    synonyms: tuple[ConfigSynonym, ...] = (default,)
    if text is not None:
        synonyms = (ConfigSynonym(name, text, ConfigSource.STATIC_BROKER_CONFIG), default)
    documentation = f"{key.doc} No effect: {key.no_effect}." if key.no_effect else key.doc
    return ConfigEntry(
        name,
        synonyms[0].value,
        synonyms[0].source,
        key.type,
        documentation,
        synonyms,
        read_only=True,
        sensitive=key.type is ConfigType.PASSWORD,
    )
