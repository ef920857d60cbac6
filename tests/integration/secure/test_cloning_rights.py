"""`magnetar clone` into a server with `--secure`, by a role with the rights that its page names, and with fewer."""

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from magnetar.base.contexts import Context, Contexts, write_contexts
from magnetar.server.token_tool import make_token
from magnetar.testing.server import MagnetarProcess, default_command
from tests.integration.links.cloning import new_topic, produce

from .test_secure import Safe

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

ROLE = "copier"


@pytest.fixture(scope="module")
def source() -> Iterator[MagnetarProcess]:
    with MagnetarProcess() as one:
        yield one


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Safe]:
    one = Safe(tmp_path_factory.mktemp("cloned") / "data")
    with one.server:
        yield one
        assert "Traceback" not in one.server.log


Rule = tuple[ResourceType, str, ResourcePatternType, str, str, AclOperation]


def rule(kind: ResourceType, name: str, operation: AclOperation) -> Rule:
    return kind, name, ResourcePatternType.LITERAL, f"User:{ROLE}", "*", operation


def allow(admin: AdminClient, *rules: Rule) -> None:
    for done in admin.create_acls([AclBinding(*one, AclPermissionType.ALLOW) for one in rules]).values():
        done.result(60)


def of_copier(safe: Safe, place: Path) -> Path:
    (place / "token").write_text(make_token(ROLE, "", (safe.folder / "token.key").as_uri(), None, None, []))
    url = f"https://localhost:{safe.server.http_port}"
    one = Context(url, str(safe.folder / "ca.pem"), str(place / "token"))
    write_contexts(place / "contexts.toml", Contexts({ROLE: one}, ROLE))
    return place / "contexts.toml"


def cloned(source: MagnetarProcess, topic: str, context: Path) -> tuple[int, list[str]]:
    """The exit code, and what the command says."""
    done = subprocess.run(
        [*default_command(), "clone", f"kafka://{source.bootstrap}", "--topics", topic, "--context", context],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, (done.stdout + done.stderr).splitlines()


def test_a_role_copies_with_the_rights_that_the_page_names(
    source: MagnetarProcess, safe: Safe, tmp_path: Path
) -> None:
    context = of_copier(safe, tmp_path)
    topic = new_topic(source.bootstrap, 1, {"retention.ms": "86400000"})
    produce(source.bootstrap, topic, [b"1", b"2", b"3"])
    committed = {"bootstrap.servers": source.bootstrap, "group.id": "billing"}
    with closing(confluent_kafka.Consumer(committed)) as consumer:
        place = confluent_kafka.TopicPartition(topic, 0, 2)
        consumer.commit(offsets=[place], asynchronous=False)
    admin = AdminClient({**safe.kafka()})
    names = ("CREATE", "READ", "WRITE", "ALTER", "ALTER_CONFIGS")
    of_topic = {name: rule(ResourceType.TOPIC, topic, AclOperation[name]) for name in names}
    code, said = cloned(source, topic, context)
    assert (code, len(said)) == (1, 1), said
    assert "not authorized to CREATE" in said[0]
    allow(admin, *of_topic.values(), rule(ResourceType.GROUP, "billing", AclOperation.READ))
    code, said = cloned(source, topic, context)
    assert code == 0, said
    there = AdminClient({"bootstrap.servers": source.bootstrap})
    set_ = AlterConfigOpType.SET
    entry = ConfigEntry("retention.ms", "3600000", incremental_operation=set_)
    changed = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for done in there.incremental_alter_configs([changed]).values():
        done.result(60)
    produce(source.bootstrap, topic, [b"4"])
    taken = AclBindingFilter(*of_topic["ALTER_CONFIGS"], AclPermissionType.ALLOW)
    for done in admin.delete_acls([taken]).values():
        assert len(done.result(60)) == 1
    code, said = cloned(source, topic, context)
    assert code == 1, said
    assert "not authorized to ALTER_CONFIGS" in said[-1]
    allow(admin, of_topic["ALTER_CONFIGS"])
    code, said = cloned(source, topic, context)
    assert code == 0, said
    with closing(confluent_kafka.Consumer({**safe.kafka(), "group.id": "billing"})) as consumer:
        (at,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], 30)
        assert at.offset == 2
        consumer.subscribe([topic])
        values: list[bytes | None] = []
        while len(values) < 2:
            values += [one.value() for one in consumer.consume(2, 30)]
    assert values == [b"3", b"4"]
