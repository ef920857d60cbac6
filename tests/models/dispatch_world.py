"""A world around one dispatcher: a log, a cursor, clients, time.

The world plays the shell and the clients: it reads what the dispatcher wants, offers it, and carries out the actions.
What must hold meanwhile is in `dispatch_books`.
"""

from collections.abc import Callable, Iterable

from magnetar.broker.subscriptions.dispatch.errors import ConsumerBusy
from magnetar.broker.subscriptions.dispatch.model import READ_ENTRIES_MAX, Consumer, Rewind, Unit

from .dispatch_books import Books, Client, Kind, Part, as_ranges


class World(Books):
    """One subscription and what may happen to it."""

    def publish(
        self, messages: int, slots: Iterable[int], delay_ms: int = 0, chunk_id: str | None = None
    ) -> None:
        """An entry of so many messages; in Key_Shared it is cut into parts by their slots."""
        base, end = self.end_offset, self.end_offset + messages
        self.end_offset = end
        by_slot: dict[int, set[int]] = {}
        keys = list(slots) if self.kind.has_keys else [1]
        for number, offset in enumerate(range(base, end)):
            by_slot.setdefault(keys[number % len(keys)], set()).add(offset)
        at = self.now_ms + delay_ms if delay_ms else 0
        self.log.append(
            [Part(base, end, frozenset(held), slot, at, chunk_id) for slot, held in by_slot.items()]
        )

    def start_read(self) -> None:
        """The shell reads what the dispatcher wants; what comes of it is seen at `end_read`."""
        if self.in_flight is not None or self.in_flight_due:
            return
        wanted = self.dispatcher.wanted_due()
        assert 0 <= wanted <= READ_ENTRIES_MAX
        self.in_flight_due = self.dispatcher.due(wanted)
        assert len(self.in_flight_due) <= wanted
        if self.in_flight_due:
            return
        wanted = self.dispatcher.wanted()
        assert 0 <= wanted <= READ_ENTRIES_MAX
        if wanted:
            last = min(len(self.log), self.read_entry + wanted)
            if last > self.read_entry:
                self.in_flight = (self.read_entry, last)

    def end_read(self) -> None:
        if self.in_flight_due:
            self._end_read_again()
        if self.in_flight is None:
            return
        first, last = self.in_flight
        self.in_flight = None
        self.read_entry = last
        units = []
        for parts in self.log[first:last]:
            for part in parts:
                left = part.offsets - self.acked
                if left:
                    units.append(self._unit(part, left))
                    self.offered[part.key] = part
                    if self.kind.is_multi and part.deliver_at_ms > self.now_ms:
                        self.delayed.add(part.key)
                    else:
                        self.fresh.add(part.key)
        self.carry_out(self.dispatcher.offer(units, self.now_ms))

    def _end_read_again(self) -> None:
        bases, self.in_flight_due = set(self.in_flight_due), []
        units, entries = [], []
        for parts in self.log:
            if parts[0].base in bases:
                entries.append((parts[0].base, parts[0].end))
                for part in parts:
                    self.delayed.discard(part.key)
                    self.ripe.discard(part.key)
                    if left := part.offsets - self.acked:
                        units.append(self._unit(part, left))
        self._ripen()
        self.carry_out(self.dispatcher.offer_due(units, entries, self.now_ms))

    def _unit(self, part: Part, left: frozenset[int]) -> Unit:
        whole = len(left) == part.end - part.base
        return Unit(
            part,
            part.base,
            part.end,
            payload=b"read",
            offsets=None if whole else as_ranges(left),
            permits=part.end - part.base,
            slot=part.slot,
            deliver_at_ms=part.deliver_at_ms,
            chunk_id=part.chunk_id,
        )

    def join(self, level: int = 0, name: str | None = None, ranges: tuple[tuple[int, int], ...] = ()) -> None:
        self.names += 1
        consumer = Consumer(
            None,
            name or f"c{self.names}",
            priority_level=level,
            unacked_messages_max=self.limits.per_consumer,
            hash_ranges=ranges,
        )
        client = Client(consumer)
        if self.kind is Kind.EXCLUSIVE and self.clients:
            self._refused(lambda: self.dispatcher.add_consumer(consumer))
            return
        self.clients.append(client)
        self.carry_out(self.dispatcher.add_consumer(consumer))

    def _refused(self, call: Callable[[], object]) -> None:
        try:
            call()
        except ConsumerBusy:
            return
        raise AssertionError("a second exclusive consumer was let in")

    def leave(self, client: Client) -> None:
        self.clients.remove(client)
        client.parts.clear()
        if not self.clients:
            self.forgotten()
        self.settle()
        actions = self.dispatcher.remove_consumer(client.consumer)
        if not self.clients:
            assert [type(action) for action in actions] == [Rewind]
        self.carry_out(actions)

    def flow(self, client: Client, permits: int) -> None:
        client.permits += max(0, permits)
        self.carry_out(self.dispatcher.flow(client.consumer, permits))

    def set_writable(self, client: Client, is_writable: bool) -> None:
        client.writable = is_writable
        self.carry_out(self.dispatcher.set_writable(client.consumer, is_writable))

    def ack(self, offsets: Iterable[int]) -> None:
        """Acknowledge offsets, delivered or not, by any client."""
        offsets = frozenset(offsets)
        self.acked |= offsets
        for client in self.clients:
            for key, part in list(client.parts.items()):
                if part.offsets <= self.acked:
                    del client.parts[key]
        for key, part in list(self.offered.items()):
            if part.offsets <= self.acked:
                del self.offered[key]
                self.fresh.discard(key)
                self.delayed.discard(key)
                self.ripe.discard(key)
                self.counts.pop(key, None)
        self.settle()
        self.carry_out(self.dispatcher.acked(as_ranges(offsets)))

    def nack(self, client: Client, bases: Iterable[int] | None) -> None:
        chosen = None if bases is None else list(bases)
        if self.kind.is_multi:
            for key in list(client.parts):
                if chosen is None or key[0] in chosen:
                    del client.parts[key]
                    self.counts[key] = self.counts.get(key, 0) + 1
            self.settle()
        self.carry_out(self.dispatcher.redeliver(client.consumer, chosen))

    def advance(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        at = self.dispatcher.next_tick_ms
        if at is None or at > self.now_ms:
            return
        self._ripen()
        self.carry_out(self.dispatcher.tick(self.now_ms))

    def _ripen(self) -> None:
        self.ripe = {key for key in self.delayed if self.offered[key].deliver_at_ms <= self.now_ms}

    def seek(self, offset: int) -> None:
        """The cursor moves: all before is acknowledged, all from there on is not."""
        self.acked = {each for each in self.acked if each < offset} | set(range(offset))
        self.dispatcher.rewind()
        self.forgotten()
        self.settle()
        self.check()

    def save(self) -> None:
        self.saved = set(self.acked)

    def kill(self) -> None:
        """All is lost but the log and the cursor as it was saved."""
        self.acked = set(self.saved)
        self.clients.clear()
        self.start_anew()

    def drain(self) -> None:
        """All consumers behave: in the end every message is acknowledged, or something was lost."""
        if self.kind is Kind.KEY_SHARED_STICKY:  # slots that no consumer declared wait for ever
            for client in list(self.clients):
                self.leave(client)
            self.join(ranges=((0, 65_535),))
        elif not self.clients:
            self.join()
        for _ in range(4 * sum(len(parts) for parts in self.log) + 50):
            if len(self.acked) == self.end_offset:
                return
            for client in list(self.clients):
                self.set_writable(client, True)
                self.flow(client, 10_000)
            self.start_read()
            self.end_read()
            self.advance(50)
            if self.kind.is_multi:
                held = {
                    offset for one in self.clients for part in one.parts.values() for offset in part.offsets
                }
            else:
                held = set(range(self.expected_base))
            self.ack(held)
        lost = sorted(set(range(self.end_offset)) - self.acked)
        raise AssertionError(f"{len(lost)} messages never came, the first is {lost[0]}")
