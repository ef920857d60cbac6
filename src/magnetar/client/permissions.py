"""Pulsar's permissions over REST: what roles may do in a namespace, with a topic, and with a namespace's
subscription.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from magnetar.base.names import TopicName
from magnetar.client.errors import BadAnswer, ClientError
from magnetar.client.http import HttpClient
from magnetar.client.login import Login


class PermissionsClient:
    """A `scope` is `tenant/namespace`, or a topic.  All calls raise errors of `magnetar.client.errors`, and may be
    repeated.
    """

    def __init__(
        self, url: str, *, read_s: float = 30.0, retry_s: float = 10.0, login: Login | None = None
    ) -> None:
        self.http = HttpClient(url, read_s=read_s, retry_s=retry_s, login=login)

    def close(self) -> None:
        self.http.close()

    def of(self, scope: str | TopicName) -> Mapping[str, Sequence[str]]:
        """The actions of each role; for a topic, including those that its namespace allows."""
        return self._lists(f"{_path(scope)}/permissions")

    def of_subscriptions(self, namespace: str) -> Mapping[str, Sequence[str]]:
        """The roles of each restricted subscription; all others are open to every role that may consume."""
        return self._lists(f"{_path(namespace)}/permissions/subscription")

    def grant(self, scope: str | TopicName, role: str, actions: Sequence[str]) -> None:
        """Set the actions of a role, which replace its present ones."""
        self.http.send_json("POST", f"{_path(scope)}/permissions/{_quoted(role)}", list(actions))

    def revoke(self, scope: str | TopicName, role: str) -> None:
        self.http.send_json("DELETE", f"{_path(scope)}/permissions/{_quoted(role)}")

    def grant_subscription(self, namespace: str, subscription: str, roles: Sequence[str]) -> None:
        """Restrict a subscription to these roles, which replace its present ones."""
        where = f"{_path(namespace)}/permissions/subscription/{_quoted(subscription)}"
        self.http.send_json("POST", where, list(roles))

    def revoke_subscription(self, namespace: str, subscription: str, role: str) -> None:
        self.http.send_json(
            "DELETE", f"{_path(namespace)}/permissions/{_quoted(subscription)}/{_quoted(role)}"
        )

    def _lists(self, path: str) -> Mapping[str, Sequence[str]]:
        answer = self.http.get_json(path)
        if not isinstance(answer, dict) or not all(isinstance(one, list) for one in answer.values()):
            raise BadAnswer(f"{self.http.url} answers with something else than permissions")
        return answer


def _path(scope: str | TopicName) -> str:
    if isinstance(scope, TopicName):
        return (
            f"/admin/v2/{scope.domain}/{'/'.join(map(_quoted, (scope.tenant, scope.namespace, scope.local)))}"
        )
    return f"/admin/v2/namespaces/{'/'.join(map(_quoted, scope.split('/')))}"


def _quoted(word: str) -> str:
    # Such names would change the path, for example to that of the namespace, which DELETE would then delete.
    if "/" in word or word in ("", ".", ".."):
        raise ClientError(f"{word[:100]!r} cannot be said over HTTP: `magnetar acls` has rules for any name")
    return quote(word, safe="")
