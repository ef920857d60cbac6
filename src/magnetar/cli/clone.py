"""`magnetar clone`: copy topics of another cluster at the same offsets."""

import re
import sys
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from magnetar.base.errors import ConfigError
from magnetar.base.patterns import whole_matcher
from magnetar.base.properties import parse_properties
from magnetar.cli.reaching import with_links
from magnetar.client.links import LinksClient

_SINCE: Final = re.compile(r"(\d{1,9})(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@with_links
def clone(
    links: LinksClient,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="kafka://HOST:PORT of the other cluster.")],
    topics: Annotated[
        str, typer.Option("--topics", metavar="REGEX", help="Copy topics whose whole names fit (RE2).")
    ],
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
            help="Properties of librdkafka for the other cluster, such as security.protocol.",
        ),
    ] = None,
) -> None:
    """Copy topics of a Kafka cluster at the same offsets, with settings, times and groups' positions.

    The copies are read-only until `magnetar links cut` cuts them loose.  A copy that was interrupted goes on where it
    ended.
    """
    from magnetar.links.address import servers_of

    servers = servers_of(source)
    try:
        is_wanted = whole_matcher(topics)
    except ValueError as error:
        raise ConfigError(f"--topics {topics[:200]!r} is not a regular expression: {error}") from None
    since_ms = _since_ms(since)
    settings = {} if source_config is None else _settings(source_config)
    try:
        from magnetar.links.clone import Clone, Wanted
        from magnetar.links.source import KafkaSource
    except ModuleNotFoundError as error:
        if error.name != "confluent_kafka":
            raise
        raise ConfigError(
            "magnetar clone needs the package confluent-kafka: pip install 'magnetar[replicators]'"
        ) from None
    from magnetar.links.mask import mask_named

    wanted = Wanted(source, is_wanted, topics, since_ms, mask_named(mask) if mask else None, follow)
    reader = KafkaSource(servers, settings)
    try:
        copying = Clone(reader, links, wanted, _say)
        copying.run()
    finally:
        reader.close()
    _say(f"{copying.records:,} records are copied")


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


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
