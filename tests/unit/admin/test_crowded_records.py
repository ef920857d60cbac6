"""Answers with stored records: how much each gets while many are being sent."""

from pathlib import Path

from magnetar.admin.routes.segments import IN_FLIGHT_BYTES_MAX
from magnetar.wire.pulsar import PulsarApi_pb2 as pb

from .world import World, run

ENTRIES = "/magnetar/v1/entries?topic=t&partition=0&offset=0"
ENTRY_BYTES = 40_000


def test_an_answer_gets_little_while_many_are_being_sent(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.publish(5, properties=[pb.KeyValue(key="k", value="v" * ENTRY_BYTES)])
        sent = world.context.sent
        whole = await world.http.get(ENTRIES)
        assert len(whole.content) > 5 * ENTRY_BYTES
        assert sent.total == 0, "it was sent"
        sent.total = IN_FLIGHT_BYTES_MAX
        assert len((await world.http.get(ENTRIES)).content) < 3 * ENTRY_BYTES
        assert sent.total == IN_FLIGHT_BYTES_MAX

    run(tmp_path, scenario)
