"""As whom a client goes on that has shown a certificate at Kafka's door."""

from collections.abc import Callable
from typing import Any

from magnetar.base.memory_budget import MemoryBudget
from magnetar.base.settings import load_settings
from magnetar.base.turn_end import TurnEnd
from magnetar.protocols.door import DoorContext
from magnetar.protocols.kafka.door import KafkaDoor
from tests.unit.protocols.kafka.test_session import SilentPeer

Run = Callable[..., None]
DAVE = "CN=Dave,OU=People,O=Magnetar"
RULES = "RULE:^CN=([A-Za-z0-9.-]+),OU=People.*$/$1/L"
USERS = "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice=a;"


class Peer(SilentPeer):
    client_host = local_host = "127.0.0.1"

    def __init__(self, certificate_name: str | None) -> None:
        super().__init__()
        self.certificate_name = certificate_name


def opened(client: Any) -> KafkaDoor:
    door = KafkaDoor(
        load_settings(
            assignments=[
                "listeners=PLAINTEXT://:1,SSL://:2,NAMED://:3,SASL_SSL://:4",
                "listener.security.protocol.map=NAMED:SSL",
                "ssl.keystore.location=/k.pem",
                f"listener.name.named.ssl.principal.mapping.rules={RULES}",
                "sasl.enabled.mechanisms=PLAIN",
                f"plain.sasl.jaas.config={USERS}",
            ]
        )
    )
    broker = client.broker
    memory = MemoryBudget(64 << 20, broker.clock)
    door.open(
        DoorContext(
            broker.cases, broker.nodes, broker.clock, client.service.arena, memory, TurnEnd(), lambda: 0
        )
    )
    return door


def who(door: KafkaDoor, listener: str, certificate_name: str | None) -> str | None:
    """None for a client that is not let in."""
    peer = Peer(certificate_name)
    found = next(one for one in door.listeners() if one.name == listener)
    session: Any = door.connected(found, peer, 1)
    principal = str(session._context.caller.principal)
    session.closed()
    return None if peer.closed else principal


def test_principal_is_the_name_by_the_listeners_rules(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        door = opened(client)
        assert who(door, "SSL", DAVE) == f"User:{DAVE}"
        assert who(door, "NAMED", DAVE) == "User:dave"
        for listener in ("PLAINTEXT", "SSL", "NAMED"):
            assert who(door, listener, None) == "User:ANONYMOUS"
        door.close()

    with_broker(scenario)


def test_certificate_without_a_name_by_the_rules_is_refused_and_counted(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        door = opened(client)
        assert who(door, "NAMED", "OU=Robots,O=Magnetar") is None
        assert door._service.logins.failed_count == 1
        door.close()

    with_broker(scenario)


def test_certificate_gives_no_name_where_a_login_does(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        door = opened(client)
        assert who(door, "SASL_SSL", DAVE) == "User:ANONYMOUS"
        door.close()

    with_broker(scenario)
