"""Replicators over REST (docs/reference/replicators.md): for the command line."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from magnetar.base.names import TopicName
from magnetar.client.errors import BadAnswer, ClientError
from magnetar.client.http import HttpClient
from magnetar.client.login import Login


class ReplicatorsClient:
    """A namespace is `tenant/namespace`.  `region` None stands for all regions of a type.  All calls raise
    `magnetar.client.errors`.
    """

    def __init__(
        self, url: str, *, read_s: float = 60.0, retry_s: float = 10.0, login: Login | None = None
    ) -> None:
        self.http = HttpClient(url, read_s=read_s, retry_s=retry_s, login=login)

    def close(self) -> None:
        self.http.close()

    def configs(self, namespace: str) -> Mapping[str, Mapping[str, Any]]:
        """The configurations of a namespace, by type and region, without credentials."""
        return self._by_region(_namespace_path(namespace))

    def add_config(
        self,
        namespace: str,
        type_name: str,
        region: str,
        policies: Mapping[str, Any],
        auth_param: Mapping[str, Any],
    ) -> None:
        """Add a configuration, or replace the one of its type and region."""
        body = {"replicatorPolicies": dict(policies), "authParamData": dict(auth_param)}
        self.http.send_json("POST", _path(_namespace_path(namespace), type_name, region), body)

    def remove_config(self, namespace: str, type_name: str, region: str) -> None:
        self.http.send_json("DELETE", _path(_namespace_path(namespace), type_name, region))

    def statistics(self, topic: TopicName) -> Mapping[str, Mapping[str, Any]]:
        """What each replicator of a topic does, by type and region."""
        return self._by_region(_topic_path(topic))

    def register(self, topic: TopicName, type_name: str, region: str | None) -> None:
        self.http.send_json("PUT", _path(_topic_path(topic), type_name), query=_query(region))

    def deregister(self, topic: TopicName, type_name: str, region: str | None) -> None:
        self.http.send_json("DELETE", _path(_topic_path(topic), type_name), query=_query(region))

    def update(self, topic: TopicName, type_name: str, action: str, region: str | None) -> None:
        """`action` is Start, Stop or Restart."""
        self.http.send_json("POST", _path(_topic_path(topic), type_name, action), query=_query(region))

    def _by_region(self, path: str) -> Mapping[str, Mapping[str, Any]]:
        answer = self.http.get_json(path)
        if not isinstance(answer, dict) or not all(isinstance(one, dict) for one in answer.values()):
            raise BadAnswer(f"{self.http.url} answers with something else than replicators")
        return answer


def _query(region: str | None) -> list[tuple[str, str]]:
    return [] if region is None else [("region", region)]


def _namespace_path(namespace: str) -> str:
    return f"{_path('/admin/v2/namespaces', *namespace.split('/'))}/replicator"


def _topic_path(topic: TopicName) -> str:
    return f"{_path('/admin/v2', topic.domain, topic.tenant, topic.namespace, topic.local)}/replicator"


def _path(root: str, *words: str) -> str:
    for word in words:
        if "/" in word or word in ("", ".", ".."):  # it would lead to another path
            raise ClientError(f"{word[:100]!r} cannot be said over HTTP")
    return "/".join((root, *(quote(word, safe="") for word in words)))
