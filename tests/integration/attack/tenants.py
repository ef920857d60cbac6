"""A server with two tenants: the victim's topic, and what the attacker knows of it and sees of her answers."""

import base64
import http.client
import json
from typing import Any, Final

from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from magnetar.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.integration.matrix.book import STRANGER, SUPER
from tests.integration.matrix.ruled import KafkaClient, Ruled, token
from tests.integration.server.wire import record_batch

SECRET: Final = b"top-secret-value"
VICTIM: Final = "persistent://public/default/vault"
PATH: Final = "/admin/v2/persistent/public/default/vault"
OWN: Final = "persistent://acme/house/hers"
ALIKE: Final = (
    VICTIM,
    "vault",
    "public/default/vault",
    "acme/house/../../public/default/vault",
    "persistent://acme/house/../../public/default/vault",
    "acme/../public/default/vault",
    "persistent://acme/house/persistent://public/default/vault",
    "persistent:///public/default/vault",
    "/public/default/vault",
    "public//default/vault",
    "public/default//vault",
    "public/./default/vault",
    "public/default/./vault",
    "public%2Fdefault%2Fvault",
    "acme/house/..%2F..%2Fpublic%2Fdefault%2Fvault",
    "acme/house/%2e%2e/%2e%2e/public/default/vault",
    "acme/house/%252e%252e%252fpublic%252fdefault%252fvault",
    "public\\default\\vault",
    "PUBLIC/default/vault",
    "public/DEFAULT/vault",
    "public/default/VAULT",
    "Persistent://public/default/vault",
    "PERSISTENT://public/default/vault",
    "persistent:/public/default/vault",
    " public/default/vault",
    "public/default/vault ",
    "public/default/vault\n",
    "public/default/vault\0",
    "public/default/vault\0.hers",
    "public/default/vau\u200blt",  # a space of no width
    "p\u0443blic/default/vault",  # a Cyrillic letter
    "\uff50ublic/default/vault",  # wide, which NFKC makes a p
    "publ\u0131c/default/vault",  # without a dot
    "public\u2215default\u2215vault",  # no slash
    "public/default/\u202etluav",  # written backwards
    "public/default/vault-partition-0",
    "public/default/vault-partition-00",
    "vault-partition-0",
    "non-persistent://public/default/vault",
    "acme/house/hers/../vault",
)
# Refusals that a name gets whatever there is: it may not be asked about, or is none.
REFUSED: Final = frozenset(
    (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)


class World:
    """A server with the victim's topic, `billing` on it, and the attacker's own topic."""

    def __init__(self, ruled: Ruled) -> None:
        self.ruled = ruled
        self.port = ruled.server.http_port
        for method, path, body in (
            ("PUT", PATH, {}),
            ("PUT", f"{PATH}/subscription/billing", {}),
            (
                "POST",
                "/admin/v2/schemas/public/default/vault/schema",
                {"type": "STRING", "schema": "", "properties": {}},
            ),
            ("PUT", "/admin/v2/namespaces/acme/house", {}),
            ("PUT", "/admin/v2/persistent/acme/house/hers", {}),
        ):
            status, content = self.http(SUPER, method, path, body)
            assert status in (200, 201, 204), (path, status, content)
        with ruled.kafka(SUPER) as client:
            for _ in range(3):
                assert client.produce("vault", record_batch([SECRET])).error_code == 0
            assert client.produce(OWN, record_batch([b"hers"])).error_code == 0
            self.topic_id = metadata(client, "vault").topic_id
            commit = OffsetCommitRequest(
                "payroll",
                topics=[OffsetCommitRequestTopic("vault", partitions=[OffsetCommitRequestPartition(0, 2)])],
            )
            assert client.ask("offset_commit", 8, commit).topics[0].partitions[0].error_code == 0
            group, read, allow = 3, 3, 3
            rule = AclCreation(group, "mine", 3, f"User:{STRANGER}", "*", read, allow)
            assert client.ask("create_acls", 3, CreateAclsRequest([rule])).results[0].error_code == 0
        self.before = self.everything()

    def http(
        self, name: str, method: str, path: str, body: Any = None, shown: str | None = None
    ) -> tuple[int, bytes]:
        """As it is written: no client of HTTP puts the path right before it sends it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        headers = {"authorization": f"Bearer {shown or token(name)}"} if name or shown else {}
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            headers["content-type"] = "application/json"
        try:
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def everything(self) -> dict[str, Any]:
        """What there is of the victim's topic, as its administrator sees it."""
        found: dict[str, Any] = {}
        for path in (
            f"{PATH}/internalStats",
            f"{PATH}/subscriptions",
            f"{PATH}/permissions",
            "/admin/v2/schemas/public/default/vault/schemas",
            "/magnetar/v1/positions?subscription=billing&topic=vault",
            "/magnetar/v1/positions?subscription=payroll",
            "/admin/v2/namespaces/public/default",
            "/admin/v2/persistent/public/default",
            "/admin/v2/tenants",
            "/admin/v2/tenants/public",
            "/admin/v2/namespaces/public",
        ):
            status, content = self.http(SUPER, "GET", path)
            assert status == 200, (path, content)
            found[path] = json.loads(content)
        found[f"{PATH}/internalStats"] = {
            key: found[f"{PATH}/internalStats"][key]
            for key in ("entriesAddedCounter", "totalSize", "lastConfirmedEntry")
        }
        return found

    def check(self, what: object, *answers: object) -> None:
        """Nothing was told, and nothing has changed."""
        for answer in answers:
            assert SECRET not in told(answer), what
            assert base64.b64encode(SECRET) not in told(answer), what
        assert self.everything() == self.before, what


def told(answer: object) -> bytes:
    """All that is in an answer, as one text."""
    if isinstance(answer, bytes | bytearray | memoryview):
        return bytes(answer)
    if isinstance(answer, str):
        return answer.encode()
    if isinstance(answer, list | tuple):
        return b"\0".join(map(told, answer))
    slots = getattr(type(answer), "__slots__", ())
    return b"\0".join(told(getattr(answer, one)) for one in slots if hasattr(answer, one))


def codes(answer: Any) -> set[int]:
    """The error codes that are anywhere in an answer of Kafka's."""
    if isinstance(answer, list | tuple):
        return set().union(*map(codes, answer))
    slots = getattr(type(answer), "__slots__", ())
    found = {answer.error_code} if "error_code" in slots else set()
    return found.union(*(codes(getattr(answer, one)) for one in slots if hasattr(answer, one)))


def metadata(client: KafkaClient, name: str) -> Any:
    return client.ask("metadata", 12, MetadataRequest([MetadataRequestTopic(name=name)])).topics[0]
