"""What subscriptions of a Pulsar cluster have acknowledged, as its admin API says.

Topic statistics say which subscriptions are kept, and their properties; internal statistics say what they have
acknowledged.  The API shows whole entries: it does not say which messages of a batch are acknowledged.
"""

import json
from typing import Any, Final
from urllib.parse import quote, unquote_plus

import urllib3

from magnetar.client.links import Position, SubscriptionPosition
from magnetar.client.login import Login
from magnetar.links.errors import SourceUnavailable
from magnetar.links.pulsar.positions import position_in, ranges_in

ANSWER_S: Final = 30.0
REDIRECTS_MAX: Final = 5  # to the broker that serves the topic
RANGES_MAX: Final = 10_000  # of one subscription: Pulsar stores no more
_COMPACTION: Final = "__compaction"  # the broker's own


class PulsarAdmin:
    """`url` is the address of the admin API, such as `http://host:8080`."""

    def __init__(self, url: str, login: Login) -> None:
        self._url = url
        self._login = login
        self._is_known = False  # to be the admin API of a cluster
        self._pool = urllib3.PoolManager(
            retries=urllib3.Retry(
                REDIRECTS_MAX,
                connect=0,
                read=0,
                redirect=REDIRECTS_MAX,
                remove_headers_on_redirect=(),  # another broker of the cluster wants the same login
            ),
            timeout=urllib3.Timeout(ANSWER_S),
            ssl_context=login.trusting() if url.startswith("https:") else None,
        )

    def close(self) -> None:
        self._pool.clear()

    def subscriptions(self, topic: str, partition: int) -> list[SubscriptionPosition]:
        """The subscriptions of a partition that are kept.  `topic` is its full name, as Pulsar's clients use it.

        Raises:
            SourceUnavailable: the API does not answer, or refuses.
        """
        if not self._is_known:
            if not isinstance(self._get("clusters"), list):
                raise SourceUnavailable(f"{self._url} is no admin API of Pulsar's")
            self._is_known = True
        domain, _, rest = topic.partition("://")
        tenant, namespace, local = rest.split("/", 2)
        path = f"{domain}/{tenant}/{namespace}/{quote(local, safe='')}"
        stats = self._get(f"{path}/stats")
        internal = self._get(f"{path}/internalStats")
        if stats is None or internal is None:  # the partition has nothing yet
            return []
        cursors = internal.get("cursors", {})
        found = []
        for encoded, cursor in cursors.items():
            name = unquote_plus(encoded)
            kept = stats.get("subscriptions", {}).get(name)
            mark_delete = position_in(cursor.get("markDeletePosition"))
            if kept is None or not kept.get("isDurable", True) or name == _COMPACTION or mark_delete is None:
                continue
            ranges = [
                one for one in ranges_in(cursor.get("individuallyDeletedMessages")) if one[1] > mark_delete
            ]
            properties = kept.get("subscriptionProperties") or {}
            found.append(
                SubscriptionPosition(name, partition, mark_delete, tuple(ranges[:RANGES_MAX]), properties)
            )
        return found

    def _get(self, path: str) -> Any:
        """The JSON at a path behind `/admin/v2/`; None if there is nothing."""
        token = self._login.token
        headers = {"authorization": f"Bearer {token}"} if token else {}
        where = f"the source's admin API at {self._url}"
        try:
            response = self._pool.request("GET", f"{self._url}/admin/v2/{path}", headers=headers)
            if response.status == 404:
                return None
            document = json.loads(response.data) if response.status == 200 else None
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise SourceUnavailable(f"{where} does not answer: {type(error).__name__}") from None
        if document is None:
            raise SourceUnavailable(f"{where} does not show {path}: status {response.status}")
        return document


def is_behind(found: SubscriptionPosition, end: Position) -> bool:
    """Whether all that a subscription has acknowledged is at or before a position."""
    last = max((last for _, last in found.acknowledged), default=found.mark_delete)
    return max(last, found.mark_delete) <= end
