"""How many partitions a client makes and deletes: refused or paid for afterwards, at Kafka's rate (KIP-599)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from magnetar.broker.errors import QuotaExceeded
from magnetar.broker.quotas.client_quotas import MUTATION_BURST_S, ClientQuotas
from magnetar.broker.quotas.model import Entity, Limit
from magnetar.broker.usecases.quotas import THROTTLE_MS_MAX, ClientMeter
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore

ALICE = Entity("alice", None)
RATE = 2.0
BURST = round(RATE * MUTATION_BURST_S)

Scenario = Callable[[ClientMeter, FakeClock], Coroutine[Any, Any, None]]


def run(scenario: Scenario, rate: float = RATE) -> None:
    async def main() -> None:
        clock = FakeClock()
        quotas = ClientQuotas(MemoryMetadataStore(), clock)
        await quotas.change({ALICE: {Limit.MUTATED: rate}})
        await scenario(ClientMeter(quotas, clock, "alice", "one"), clock)

    asyncio.run(main())


def test_eleven_seconds_worth_comes_at_once() -> None:
    async def scenario(meter: ClientMeter, clock: FakeClock) -> None:
        assert BURST == 22
        mutations = meter.mutations(is_strict=False)
        mutations.count(BURST)
        assert mutations.throttle_ms() == 0
        mutations.count(1)
        assert mutations.throttle_ms() == 500

    run(scenario)


def test_what_comes_while_something_is_owed_is_refused_and_does_not_count() -> None:
    async def scenario(meter: ClientMeter, clock: FakeClock) -> None:
        first = meter.mutations(is_strict=True)
        first.count(BURST + 10)  # whole, as it came while nothing was owed
        assert first.throttle_ms() == 0
        for _ in range(3):
            second = meter.mutations(is_strict=True)
            with pytest.raises(QuotaExceeded):
                second.count(1_000)
            assert second.throttle_ms() == 5_000
        clock.advance(4.9)
        with pytest.raises(QuotaExceeded):
            meter.mutations(is_strict=True).count(1)
        clock.advance(0.1)
        third = meter.mutations(is_strict=True)
        third.count(1)
        assert third.throttle_ms() == 0

    run(scenario)


def test_clients_that_know_no_refusal_wait_for_all_that_they_did() -> None:
    async def scenario(meter: ClientMeter, clock: FakeClock) -> None:
        mutations = meter.mutations(is_strict=False)
        mutations.count(BURST + 10)
        mutations.count(10)
        assert mutations.throttle_ms() == 10_000
        clock.advance(4)
        assert mutations.throttle_ms() == 6_000, "what the work took counts"
        clock.advance(7)
        assert mutations.throttle_ms() == 0

    run(scenario)


def test_both_kinds_share_what_they_may() -> None:
    async def scenario(meter: ClientMeter, clock: FakeClock) -> None:
        meter.mutations(is_strict=False).count(BURST + 1)
        with pytest.raises(QuotaExceeded):
            meter.mutations(is_strict=True).count(1)

    run(scenario)


def test_rates_may_be_as_small_as_numbers_are() -> None:
    async def scenario(meter: ClientMeter, clock: FakeClock) -> None:
        mutations = meter.mutations(is_strict=False)
        mutations.count(1)
        assert mutations.throttle_ms() == THROTTLE_MS_MAX

    run(scenario, 5e-324)


def test_a_client_without_such_a_quota_may_do_as_it_likes() -> None:
    async def scenario(meter: ClientMeter, clock: FakeClock) -> None:
        other = ClientMeter(meter._quotas, clock, "bob", "one").mutations(is_strict=True)
        for _ in range(3):
            other.count(1 << 40)
        assert other.throttle_ms() == 0

    run(scenario)
