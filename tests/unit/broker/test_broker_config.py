from magnetar.base.config import ConfigSource, ConfigType
from magnetar.base.settings_connections import DYNAMIC_NAMES
from magnetar.base.settings_table import SERVER_KEYS
from magnetar.broker.policy.broker_config import describe_broker


def test_every_key_that_has_an_effect_is_shown_and_those_that_may_change_are_not_read_only() -> None:
    entries = describe_broker({})
    assert [entry.name for entry in entries] == sorted(
        name for name, key in SERVER_KEYS.items() if not key.no_effect
    )
    for entry in entries:
        assert entry.read_only == (entry.name not in DYNAMIC_NAMES)
        assert entry.source is ConfigSource.DEFAULT_CONFIG
        assert entry.value == SERVER_KEYS[entry.name].default
        assert entry.documentation


def test_what_was_set_is_shown_over_its_default() -> None:
    (entry,) = describe_broker({"num.partitions": "4"}, ["num.partitions", "no.such.key"])
    assert (entry.value, entry.source, entry.type) == ("4", ConfigSource.STATIC_BROKER_CONFIG, ConfigType.INT)
    assert [(s.value, s.source) for s in entry.synonyms] == [
        ("4", ConfigSource.STATIC_BROKER_CONFIG),
        ("1", ConfigSource.DEFAULT_CONFIG),
    ]


def test_a_key_without_effect_is_shown_once_it_is_set_and_says_so() -> None:
    assert describe_broker({}, ["entryFormat"]) == []
    (entry,) = describe_broker({"entryFormat": "pulsar"}, ["entryFormat"])
    assert entry.value == "pulsar"
    assert "No effect: there is no format to choose" in entry.documentation
