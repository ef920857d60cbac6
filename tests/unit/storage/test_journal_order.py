"""What the journal says or allows only behind something else."""

import asyncio

from magnetar.base.errors import StorageError

from .helpers import in_a_loop
from .played_journal import Played


@in_a_loop
async def test_the_use_of_a_file_counts_from_its_first_whole_round_on() -> None:
    """A start that finds no round of the use that a checkpoint has noted takes the file for lost."""
    on = Played(blocks=1)
    on.journal.start()
    on.append(100, 0)
    await on.rounds_told(1)
    on.files[1].gate.clear()
    on.append(100, 1)
    await asyncio.sleep(0)
    await asyncio.to_thread(on.files[1].waits.wait)
    assert on.journal.epoch == 1
    on.files[1].fails.append(OSError(5, "Input/output error"))
    on.files[2].gate.clear()
    on.files[1].gate.set()
    await asyncio.to_thread(on.files[2].waits.wait)  # the cut
    assert on.journal.epoch == 1
    on.files[2].gate.set()
    await on.rounds_told(2)
    assert on.journal.epoch == 3
    await on.journal.stop()


@in_a_loop
async def test_while_a_failed_round_is_reported_appends_are_refused() -> None:
    """One of a ledger whose producer has not heard of it yet would leave a hole."""
    on = Played()
    report = on.journal._on_round
    refused: list[str] = []

    def append_another(*told: object) -> None:
        try:
            on.append(100, 1)
        except StorageError as error:
            refused.append(str(error))
        report(*told)  # type: ignore[arg-type]

    on.files[0].fails.append(OSError(5, "Input/output error"))
    on.journal._on_round = append_another
    on.journal.start()
    on.append(100, 0)
    await on.rounds_told(1)
    assert refused == ["a journal write has just failed"]
    on.journal._on_round = report
    on.append(100, 0)
    await on.rounds_told(2)
    assert on.told[1] == (1, 2, None)
    await on.journal.stop()
