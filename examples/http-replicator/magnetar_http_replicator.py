"""Replicates topics to an HTTP endpoint: each flush posts the records of a chunk as lines of JSON, in their order.

    {"url": "https://example.com/ingest"}

A topic's target is added to the URL.  What the endpoint answers decides: 401 and 403 refuse who writes, 413 and 422
refuse a record for good, any other status that is no success means "later".
"""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from urllib.parse import quote

from magnetar.replicators.errors import (
    CredentialsRefused,
    PoisonRecords,
    ReplicatorConfigError,
    TargetUnavailable,
)
from magnetar.replicators.policies import ReplicatorPolicies
from magnetar.replicators.provider import ReplicatedRecord

ANSWER_S = 10.0


class HttpProvider:
    type = "Http"

    def validate_properties(self, namespace: str, policies: ReplicatorPolicies) -> None:
        url = policies.properties.get("url")
        if set(policies.properties) != {"url"} or not str(url).startswith(("http://", "https://")):
            raise ReplicatorConfigError(
                "a replicator to HTTP needs one property, url: an address of http or https"
            )

    def create_producer(self, topic: str, policies: ReplicatorPolicies) -> "HttpProducer":
        target = policies.target_of(topic.rpartition("/")[2])
        token = (policies.credentials or {}).get("token")
        return HttpProducer(f"{policies.properties['url']}/{quote(target or '')}", token)


class HttpProducer:
    def __init__(self, url: str, token: str | None) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._chunk: list[ReplicatedRecord] = []

    def send(self, records: Sequence[ReplicatedRecord]) -> None:
        self._chunk += records

    def flush(self) -> None:
        chunk, self._chunk = self._chunk, []
        if self._takes(chunk):
            return
        # The endpoint refuses one at least, and does not say which: the rest arrives one by one, in order.
        poison = [(record, "the endpoint refuses it") for record in chunk if not self._takes([record])]
        if poison:
            raise PoisonRecords(poison)

    def close(self) -> None:
        self._chunk = []

    def _takes(self, records: Sequence[ReplicatedRecord]) -> bool:
        body = b"".join(json.dumps(_line(record)).encode() + b"\n" for record in records)
        request = urllib.request.Request(self._url, body, self._headers)  # noqa: S310  validated above
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S):  # noqa: S310
                return True
        except urllib.error.HTTPError as error:
            if error.code in (413, 422):
                return False
            kind = CredentialsRefused if error.code in (401, 403) else TargetUnavailable
            raise kind(f"the endpoint answers {error.code}") from None
        except OSError as error:
            raise TargetUnavailable(f"the endpoint does not answer: {error}") from None


def _line(record: ReplicatedRecord) -> dict[str, object]:
    value = None if record.value is None else base64.b64encode(record.value).decode()
    key = None if record.key is None else base64.b64encode(record.key).decode()
    return {"partition": record.partition, "offset": record.offset, "key": key, "value": value}
