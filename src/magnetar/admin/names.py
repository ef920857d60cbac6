"""Topics and connectors in the paths of the admin API: `/persistent/{tenant}/{namespace}/{topic}`.

`{domain:domain}` in a route matches only the two kinds of topics, so that such a route never answers for
`/namespaces/...`.  `{connector:connector}` matches the words for sinks and sources: Pulsar's clients send the singular,
and its documents say the plural.  The router knows both once this module is imported.
"""

from starlette.convertors import Convertor, register_url_convertor

from magnetar.base.names import TopicName, parse_partition


class _Words(Convertor[str]):
    """Matches the words of `regex` only."""

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


class _Domain(_Words):
    regex = "persistent|non-persistent"


class _Connector(_Words):
    regex = "sinks?|sources?"


register_url_convertor("domain", _Domain())
register_url_convertor("connector", _Connector())


def topic_name(domain: str, tenant: str, namespace: str, topic: str) -> tuple[TopicName, int]:
    """The topic and the partition (-1: the whole topic) that a path names.  Raises InvalidTopicName."""
    return parse_partition(f"{domain}://{tenant}/{namespace}/{topic}")
