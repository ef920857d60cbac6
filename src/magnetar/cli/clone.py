"""`magnetar clone`: copy topics of another cluster, of Kafka's or of Pulsar's."""

import re
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Final

import typer

from magnetar.base.errors import ConfigError
from magnetar.base.patterns import whole_matcher
from magnetar.base.properties import parse_properties
from magnetar.cli.output import say
from magnetar.cli.reaching import with_links
from magnetar.client.links import LinksClient
from magnetar.links.address import KafkaAddress, PulsarAddress, address_of
from magnetar.links.clone import Clone, Wanted
from magnetar.links.pulsar.settings import Settings, settings_of

_SINCE: Final = re.compile(r"(\d{1,9})(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@with_links
def clone(
    links: LinksClient,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="kafka://HOST:PORT of the other cluster, or pulsar://HOST:PORT/TENANT/NAMESPACE[/TOPIC].",
        ),
    ],
    topics: Annotated[
        str, typer.Option("--topics", metavar="REGEX", help="Copy topics whose whole names fit (RE2).")
    ] = "",
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="Only records of the last 90s, 15m, 1h or 7d.")
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on when everything is copied, until you interrupt it.")
    ] = False,
    mask: Annotated[
        str,
        typer.Option(
            "--mask", metavar="MODULE:FUNCTION", help="Copy what this Python function makes of each record."
        ),
    ] = "",
    source_config: Annotated[
        Path | None,
        typer.Option(
            "--source-config",
            metavar="FILE",
            help="How to log in there: properties of librdkafka, or those of Pulsar's client.conf.",
        ),
    ] = None,
    source_admin: Annotated[
        str,
        typer.Option(
            "--source-admin",
            metavar="URL",
            help="Pulsar's admin API there, which tells what subscriptions have acknowledged.",
        ),
    ] = "",
) -> None:
    """Copy topics of another cluster: Kafka's at the same offsets, or Pulsar's, as their producers have sent them.

    The positions of groups and subscriptions come, too.  The copies are read-only until `magnetar links cut` cuts them
    loose.  A copy that was interrupted goes on where it ended.
    """
    address = address_of(source)
    settings = {} if source_config is None else _settings(source_config)
    since_ms = _since_ms(since)
    if isinstance(address, KafkaAddress):
        if source_admin:
            raise ConfigError("--source-admin is for a source of Pulsar's")
        wanted = Wanted(source, _matcher(topics), topics, since_ms, follow)
        _clone_kafka(links, address, wanted, settings, mask)
        return
    if mask:
        raise ConfigError("--mask changes records of Kafka: messages of Pulsar's are copied as they are")
    if address.topic:
        if topics:
            raise ConfigError("the source's address names its topic: leave out --topics")
        wanted = Wanted(source, address.topic.__eq__, address.topic, since_ms, follow)
    else:
        wanted = Wanted(source, _matcher(topics), topics, since_ms, follow)
    _clone_pulsar(links, address, wanted, settings_of(settings, source_admin))


def _clone_pulsar(links: LinksClient, address: PulsarAddress, wanted: Wanted, settings: Settings) -> None:
    from magnetar.links.pulsar.admin import PulsarAdmin
    from magnetar.links.pulsar.copies import PulsarCopies
    from magnetar.links.pulsar.source import PulsarSource

    if not settings.admin_url:
        say("subscriptions are not copied: --source-admin says where the source's admin API is")
    with closing(PulsarSource(address, settings)) as reader:
        admin = PulsarAdmin(settings.admin_url, settings.login) if settings.admin_url else None
        copies = PulsarCopies(reader, admin, links, wanted.address)
        _run(Clone(reader, copies, links, wanted, say))


def _clone_kafka(
    links: LinksClient,
    address: KafkaAddress,
    wanted: Wanted,
    settings: Mapping[str, str],
    mask: str,
) -> None:
    try:
        from magnetar.links.kafka.source import KafkaSource
    except ModuleNotFoundError as error:
        if error.name != "confluent_kafka":
            raise
        raise ConfigError(
            "magnetar clone needs the package confluent-kafka: pip install 'magnetar[replicators]'"
        ) from None
    from magnetar.links.kafka.copies import KafkaCopies
    from magnetar.links.kafka.mask import mask_named

    chosen = mask_named(mask) if mask else None
    with closing(KafkaSource(address.servers, settings)) as reader:
        copies = KafkaCopies(reader, links, wanted.address, chosen)
        _run(Clone(reader, copies, links, wanted, say))


def _run(copying: Clone) -> None:
    copying.run()
    say(f"{copying.records:,} records are copied")


def _matcher(topics: str) -> Callable[[str], bool]:
    if not topics:
        raise ConfigError("--topics REGEX says which topics are copied")
    try:
        return whole_matcher(topics)
    except ValueError as error:
        raise ConfigError(f"--topics {topics[:200]!r} is not a regular expression: {error}") from None


def _since_ms(text: str) -> int | None:
    """The time, in ms since the epoch, that is so long ago; None for an empty text."""
    if not text:
        return None
    found = _SINCE.fullmatch(text)
    if found is None:
        raise ConfigError(f"--since must be such as 90s, 15m, 1h or 7d, not {text[:100]!r}")
    return max(time.time_ns() // 1_000_000 - int(found[1]) * _UNITS_MS[found[2]], 0)


def _settings(file: Path) -> dict[str, str]:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"--source-config {file} cannot be read: {error.strerror}") from error
    return {one.key: one.value for one in parse_properties(data, str(file))}
