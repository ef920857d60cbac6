"""Topics in the paths of the admin API: `/persistent/{tenant}/{namespace}/{topic}`.

`{domain:domain}` in a route matches only the two kinds of topics, so that such a route never answers for
`/namespaces/...`.  The router knows it once this module is imported.
"""

from starlette.convertors import Convertor, register_url_convertor

from magnetar.base.names import TopicName, parse_partition


class _Domain(Convertor[str]):
    regex = "persistent|non-persistent"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("domain", _Domain())


def topic_name(domain: str, tenant: str, namespace: str, topic: str) -> tuple[TopicName, int]:
    """The topic and the partition (-1: the whole topic) that a path names.  Raises InvalidTopicName."""
    return parse_partition(f"{domain}://{tenant}/{namespace}/{topic}")
