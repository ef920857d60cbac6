"""The store against a dictionary of lists, with restarts and power losses among the steps."""

import asyncio
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from magnetar.storage.local.settings import LocalStoreSettings
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.store import EntryId, LedgerId, LedgerReader
from magnetar.testing.clock import FakeClock
from magnetar.testing.disk import CrashDisk, Fate

DATA = Path("/data")
TINY = LocalStoreSettings(
    journal_file_bytes=64 * 1024,
    journal_file_count=3,
    round_bytes_max=16 * 1024,
    flush_bytes=8 * 1024,
    read_step_bytes=16 * 1024,
    checkpoint_entries_max=60,
)


class StoreMachine(RuleBasedStateMachine):
    """`model` has what was acknowledged, by ledger: (last_offset, timestamp, body)."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.disk = CrashDisk()
        self.model: dict[int, list[tuple[int, int, bytes]]] = {}
        self.writers: dict[int, LedgerReader] = {}
        self.ids: set[int] = set()
        self.start()

    def start(self) -> None:
        self.store = self.runner.run(
            LocalLedgerStore.start(DATA, settings=TINY, clock=FakeClock(), disk=self.disk)
        )
        self.writers = {}

    def pick(self, number: int) -> int:
        return sorted(self.model)[number % len(self.model)]

    @rule()
    def create(self) -> None:
        ledger = self.runner.run(self.store.create())
        assert ledger.ledger_id not in self.ids
        self.ids.add(ledger.ledger_id)
        self.model[ledger.ledger_id] = []
        self.writers[ledger.ledger_id] = ledger

    @precondition(lambda self: self.writers)
    @rule(
        number=st.integers(0, 9),
        entries=st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 100)), min_size=1, max_size=30),
    )
    def append(self, number: int, entries: list[tuple[int, int]]) -> None:
        ledger_id = sorted(self.writers)[number % len(self.writers)]
        ledger = self.store._ledgers[ledger_id]
        known = self.model[ledger_id]

        async def scenario() -> None:
            waiting = []
            offset = known[-1][0] if known else -1
            for size, stamp in entries:
                offset += 3
                body = bytes([stamp]) * size
                future = asyncio.get_running_loop().create_future()
                ledger.append([body[:5], body[5:]], size, offset, stamp, future.set_result)
                known.append((offset, stamp, body))
                waiting.append(future)
            assert set(await asyncio.gather(*waiting)) == {None}

        self.runner.run(scenario())

    @precondition(lambda self: self.model)
    @rule(number=st.integers(0, 9))
    def open(self, number: int) -> None:
        ledger_id = self.pick(number)
        reader = self.runner.run(self.store.open(LedgerId(ledger_id)))
        assert reader.stat.sealed
        self.writers.pop(ledger_id, None)

    @precondition(lambda self: self.model)
    @rule(number=st.integers(0, 9))
    def delete(self, number: int) -> None:
        ledger_id = self.pick(number)
        self.runner.run(self.store.delete(LedgerId(ledger_id)))
        del self.model[ledger_id]
        self.writers.pop(ledger_id, None)

    @rule()
    def checkpoint(self) -> None:
        self.runner.run(self.store.checkpoint())

    @rule()
    def restart(self) -> None:
        self.runner.run(self.store.close())
        self.start()

    @rule(fate=st.sampled_from(list(Fate)), seed=st.integers(0, 1000))
    def lose_power(self, fate: Fate, seed: int) -> None:
        left = self.disk.after_power_loss(fate, seed)
        self.runner.run(self.store.close())
        self.disk = left
        self.start()

    @precondition(lambda self: self.model)
    @rule(number=st.integers(0, 9), first=st.integers(0, 60), bytes_max=st.integers(0, 60_000))
    def read(self, number: int, first: int, bytes_max: int) -> None:
        ledger_id = self.pick(number)
        known = self.model[ledger_id]
        found = self.runner.run(self.store._ledgers[ledger_id].read(EntryId(first), bytes_max))
        expected: list[tuple[int, int, bytes]] = []
        for entry in known[first:]:
            if expected and sum(len(e[2]) for e in expected) + len(entry[2]) > bytes_max:
                break
            expected.append(entry)
        if sum(len(e[2]) for e in expected) >= bytes_max:
            # Empty entries behind a full answer may come with it or with the next one.
            while len(expected) > max(len(found), 1) and not expected[-1][2]:
                expected.pop()
        assert [(e.last_offset, e.max_timestamp_ms, bytes(e.body)) for e in found] == expected

    @precondition(lambda self: self.model)
    @rule(number=st.integers(0, 9), offset=st.integers(-2, 200), stamp=st.integers(-1, 102))
    def look_up(self, number: int, offset: int, stamp: int) -> None:
        ledger_id = self.pick(number)
        known = self.model[ledger_id]
        ledger = self.store._ledgers[ledger_id]
        by_offset = next((n for n, entry in enumerate(known) if entry[0] >= offset), None)
        by_stamp = next((n for n, entry in enumerate(known) if entry[1] >= stamp), None)
        assert self.runner.run(ledger.entry_for_offset(offset)) == by_offset
        assert self.runner.run(ledger.entry_for_timestamp(stamp)) == by_stamp

    @invariant()
    def lists_what_there_is(self) -> None:
        found = {stat.ledger_id: stat.entry_count for stat in self.runner.run(self.store.list_ledgers())}
        assert found == {ledger_id: len(entries) for ledger_id, entries in self.model.items()}

    def teardown(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()


StoreMachine.TestCase.settings = settings(stateful_step_count=30)
TestStore = StoreMachine.TestCase
