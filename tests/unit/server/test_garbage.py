"""The collector's steps stay small however much is alive, and a full collection waits until it is cheap."""

import json
import subprocess
import sys

PROGRAM = """
import asyncio, gc, json, weakref
from magnetar.base.upkeep import Upkeep
from magnetar.server import garbage
from magnetar.testing.clock import FakeClock

class Knot:
    pass

async def main():
    with garbage.paused():
        stood_still = not gc.isenabled()
        garbage.tune_collector(Upkeep(FakeClock()).every, lambda: 0)
        assert stood_still and gc.isenabled()
    clock = FakeClock()
    upkeep = Upkeep(clock)
    entries = 0
    seen = []
    gc.callbacks.append(lambda phase, info: seen.append(info["generation"]) if phase == "start" else None)
    garbage.tune_collector(upkeep.every, lambda: entries)
    seen.clear()
    kept = [[] for _ in range(20 * garbage.YOUNG_OBJECTS)]
    steps = list(seen)

    async def interval():
        clock.advance(garbage.FULL_INTERVAL_S)
        await upkeep.idle()

    knot = Knot()
    knot.itself = knot
    gone = weakref.ref(knot)
    kept += [[] for _ in range(2 * garbage.YOUNG_OBJECTS)]  # past its youth
    del knot
    seen.clear()
    entries = garbage.FULL_ENTRIES_MAX + 1
    await interval()
    dear = [2 in seen, gone() is None]
    entries = garbage.FULL_ENTRIES_MAX
    await interval()
    print(json.dumps({"steps": steps, "dear": dear, "cheap": [2 in seen, gone() is None]}))

asyncio.run(main())
"""


def test_steps_are_small_and_full_collections_only_cheap() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    found = json.loads(done.stdout)
    assert set(found["steps"]) == {0}
    assert 15 <= len(found["steps"]) <= 21
    assert found["dear"] == [False, False]
    assert found["cheap"] == [True, True]
