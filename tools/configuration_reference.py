"""Write docs/reference/configuration.md from the tables of keys: `python tools/configuration_reference.py`.

A test holds the file to what this makes.
"""

from pathlib import Path

from magnetar.base.config import ConfigKey
from magnetar.base.server_key import Section, ServerKey
from magnetar.base.settings_ignored import IGNORED_KEYS, IGNORED_PREFIXES
from magnetar.base.settings_sources import environment_name
from magnetar.base.settings_table import SERVER_KEYS
from magnetar.broker.policy.topic_keys import TOPIC_KEYS, Effect, TopicKey

FILE = Path(__file__).parent.parent / "docs" / "reference" / "configuration.md"

INTRODUCTION = """\
# Configuration

<!-- Made by tools/configuration_reference.py from the tables of keys in src/magnetar: change those. -->

No key is required. Values come from five places; a later place wins over an earlier one:

1. the defaults below;
2. a properties file, `magnetar standalone --config FILE`, with Kafka's or KoP's own key names;
3. the environment: `MAGNETAR_` and the key in capitals, dots as underscores: `MAGNETAR_NUM_PARTITIONS=4`;
4. `--set key=value`, as often as needed;
5. flags: `--data-dir`, `--host`, `--kafka-port`, `--pulsar-port`, `--http-port`, `--secure`, `--nodes`, `--log-level`,
   `--log-format`.

If a key is unknown, a value is out of range, or two names of one setting have different values, the server refuses to
start and says so in one sentence. It accepts keys of Kafka and KoP that mean nothing here, and logs why they have no
effect. `magnetar config list` shows the same tables; `--output json` is for programs.
"""

TOPICS = """\
## Topics

Any Kafka admin client can set these, when it creates a topic or later. If a broker key is named, it sets the default.
"""

IGNORED = """\
## Accepted and without effect

The server accepts these keys of Kafka and KoP, so that you can use a file unchanged. They change nothing.
"""


def render() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for section in Section:
        keys = [key for key in SERVER_KEYS.values() if key.section is section]
        parts.append(f"## {section.value}\n\n" + "\n".join(map(_server_key, keys)) + "\n")
    parts.append(TOPICS + "\n" + "\n".join(map(_topic_key, TOPIC_KEYS.values())) + "\n")
    parts.append(IGNORED + "\n" + "\n".join(_ignored()) + "\n")
    return "\n".join(parts)


def _server_key(key: ServerKey) -> str:
    default = key.default_words if key.default is None else f"`{key.default}`" if key.default else "empty"
    names = [alias.name if alias.unit == 1 else f"{alias.name} (MiB)" for alias in key.aliases]
    lines = [f"- **`{key.name}`** ({_range(key)}; default: {default or 'none'})  ", f"  {key.doc}"]
    if key.no_effect:
        lines[-1] += f" No effect: {key.no_effect}."
    lines[-1] += "  "
    also = f"; also: {', '.join(f'`{name}`' for name in names)}" if names else ""
    lines.append(f"  Environment: `{environment_name(key.name)}`{also}")
    return "\n".join(lines)


def _topic_key(key: TopicKey) -> str:
    default = f"`{key.default}`" if key.default else "empty"
    effect = "" if key.effect is Effect.ENFORCED else ", no effect"
    lines = [f"- **`{key.name}`** ({_range(key)}; default: {default}{effect})  ", f"  {key.doc}"]
    if key.synonyms:
        lines[-1] += "  "
        lines.append("  Broker: " + ", ".join(f"`{synonym.name}`" for synonym in key.synonyms))
    return "\n".join(lines)


def _range(key: ConfigKey) -> str:
    kind = key.type.name.lower()
    return f"{kind}, {key.allowed}" if key.allowed else kind


def _ignored() -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for name, reason in IGNORED_KEYS.items():
        by_reason.setdefault(reason, []).append(name)
    for prefix, reason in IGNORED_PREFIXES.items():
        by_reason.setdefault(reason, []).append(f"{prefix}*")
    return [
        f"- {reason[0].upper()}{reason[1:]}: {', '.join(f'`{name}`' for name in sorted(names))}."
        for reason, names in by_reason.items()
    ]


if __name__ == "__main__":
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(render())
