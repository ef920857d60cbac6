"""The numbers of the Pulsar listener are those of its service."""

import asyncio
from pathlib import Path

from magnetar.base.exposition import render
from magnetar.base.metrics import Metrics
from magnetar.protocols.pulsar.metrics import declare_pulsar_metrics
from magnetar.testing.pulsar import running_door
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, CommandPing


def test_commands_and_connections_are_counted(tmp_path: Path) -> None:
    async def scenario() -> str:
        async with running_door(tmp_path) as door:
            metrics = Metrics()
            declare_pulsar_metrics(metrics, door.service)
            client = await door.connected()
            await door.connected()
            for _ in range(3):
                await client.ask(CommandPing(), BaseCommand.PONG)
            return render(metrics).decode()

    page = asyncio.run(scenario())
    assert "pulsar_active_connections 2" in page
    assert 'magnetar_pulsar_commands_total{command="ping"} 3' in page
    assert 'magnetar_pulsar_commands_total{command="connect"} 2' in page
    assert "magnetar_pulsar_unanswered_bytes 0" in page
