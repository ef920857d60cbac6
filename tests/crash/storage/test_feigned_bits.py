"""A client chooses a body that looks like one wrong bit if the power fails before its last sector is written.

The client chooses the bit, too.  The rule that is tested: a repair gives no record to a ledger that it was not written
to.  (With other bits, it may have a record of the client's own that is not quite what the client wrote.)
"""

import asyncio
import random

import pytest
from crc32c import crc32c

from magnetar.base.errors import StorageError
from magnetar.storage.blocks import BLOCK_BYTES
from magnetar.storage.local import doctor
from magnetar.storage.local.format import ROUND_BYTES
from magnetar.storage.local.salvage import examine
from magnetar.testing.disk import SECTOR_BYTES, CrashDisk, Fate
from magnetar.wire.stored import RECORD_BYTES
from tests.crash.storage.killed_store import DATA, Killed, Load, one_by_one, repaired, start

BODY_BYTES = BLOCK_BYTES - ROUND_BYTES - RECORD_BYTES
LEDGER_ID = 8
"""Where it is in a record."""


def feigning(bit: int) -> bytes:
    """A body that fills its round's block.  Without the block's last sector, the bit of its record looks wrong that is
    `bit` bits, from the lowest, in the last byte of the ledger's id.
    """
    covered = RECORD_BYTES - LEDGER_ID + BODY_BYTES
    nothing = crc32c(bytes(covered))

    def effect(position: int, bit: int) -> int:
        content = bytearray(covered)
        content[position] ^= 1 << bit
        return crc32c(bytes(content)) ^ nothing

    basis: dict[int, tuple[int, int]] = {}
    for place in range(32):  # the last four bytes can have any effect
        change, used = effect(covered - 4 + place // 8, place % 8), 1 << place
        while change.bit_length() in basis:
            other, others = basis[change.bit_length()]
            change, used = change ^ other, used ^ others
        basis[change.bit_length()] = (change, used)
    wanted, last = effect(7, bit), 0
    while wanted:
        change, used = basis[wanted.bit_length()]
        wanted, last = wanted ^ change, last ^ used
    visible = random.Random(1).randbytes(BODY_BYTES - SECTOR_BYTES)
    return visible + bytes(SECTOR_BYTES - 4) + last.to_bytes(4, "little")


def test_no_record_gets_into_another_ledger() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        load = Load(store)
        for _ in range(3):
            await load.create()
        await load.append(1, 1, 1)
        body = feigning(0)  # ledger 2 becomes 3
        answered = asyncio.get_running_loop().create_future()
        load.ledgers[1].append([body], len(body), 1, 1, answered.set_result)
        await answered
        dead = Killed(disk.after_power_loss(Fate.DROPPED), load.acknowledged)
        await store.close()
        path, position, end, sequence = dead.rounds[-1]
        assert end - position == BLOCK_BYTES
        torn = dead.disk()
        torn.content(path)[end - SECTOR_BYTES : end] = bytes(SECTOR_BYTES)
        with pytest.raises(
            StorageError, match=f"round {sequence}, has one wrong bit, or was cut short; behind it 0"
        ):
            await start(torn)
        examined = examine(torn, DATA)
        told = [finding.text for finding in doctor.check(examined, deep=True)]
        examined.close()
        assert any("a client can feign that, so a repair leaves the round out" in text for text in told)
        repaired(torn)
        assert await dead.found(torn) == {1: 1, 2: 1, 3: 1}

    asyncio.run(scenario())


def test_a_bit_of_a_ledgers_id_is_turned_back_where_something_follows() -> None:
    async def scenario() -> None:
        dead = await one_by_one(count=5)
        for path, position, _, _ in dead.rounds[1:-1]:
            disk = dead.flipped(path, position + ROUND_BYTES + LEDGER_ID + 7, 1)
            with pytest.raises(StorageError, match="has one wrong bit; behind it"):
                await start(disk)
            repaired(disk)
            assert await dead.found(disk) == dead.acknowledged
        path, position, _, _ = dead.rounds[-1]
        disk = dead.flipped(path, position + ROUND_BYTES + LEDGER_ID, 1)
        with pytest.raises(StorageError, match="has one wrong bit, or was cut short; behind it"):
            await start(disk)
        repaired(disk)
        assert await dead.found(disk) == {1: 4}

    asyncio.run(scenario())
