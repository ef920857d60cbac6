"""The broker's own configuration, as DescribeConfigs of a broker shows it.

A setting that cannot change while the server runs is read-only.  Keys without effect are left out unless they were set,
so that the answer shows the values in effect.
"""

from collections.abc import Collection, Mapping

from magnetar.base.config import ConfigSource, ConfigType
from magnetar.base.server_key import ServerKey
from magnetar.base.settings_table import SERVER_KEYS
from magnetar.broker.policy.dynamic_config import dynamic_key
from magnetar.broker.policy.model import ConfigEntry, ConfigSynonym


def describe_broker(
    given: Mapping[str, str],
    names: Collection[str] | None = None,
    of_node: Mapping[str, str] | None = None,
    of_all: Mapping[str, str] | None = None,
) -> list[ConfigEntry]:
    """Every key (or those of `names`), in order of name.

    `given` has the texts that were set at the start, `of_node` and `of_all` those that were set later, for the node and
    for all of them.
    """
    layers = (
        (of_node or {}, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (of_all or {}, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (given, ConfigSource.STATIC_BROKER_CONFIG),
    )
    keys = dict(SERVER_KEYS)
    for texts, _ in layers:
        keys |= {name: key for name in texts if (key := dynamic_key(name)) is not None}
    return [
        _entry(name, key, layers)
        for name, key in sorted(keys.items())
        if (name in given or not key.no_effect) and (names is None or name in names)
    ]


def describe_all_brokers(
    of_all: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """What was set for all of them while they ran, and nothing else."""
    layers = ((of_all, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),)
    return [
        _entry(name, key, layers)
        for name in sorted(of_all)
        if (names is None or name in names) and (key := dynamic_key(name)) is not None
    ]


def _entry(
    name: str, key: ServerKey, layers: Collection[tuple[Mapping[str, str], ConfigSource]]
) -> ConfigEntry:
    synonyms = [ConfigSynonym(name, texts[name], source) for texts, source in layers if name in texts]
    if name == key.name:
        synonyms.append(ConfigSynonym(name, key.default, ConfigSource.DEFAULT_CONFIG))
    documentation = f"{key.doc} No effect: {key.no_effect}." if key.no_effect else key.doc
    return ConfigEntry(
        name,
        synonyms[0].value,
        synonyms[0].source,
        key.type,
        documentation,
        tuple(synonyms),
        read_only=dynamic_key(name) is None,
        sensitive=key.type is ConfigType.PASSWORD,
    )
