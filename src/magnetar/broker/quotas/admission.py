"""Which clients may connect: how many connections there may be, and how fast they may come (KIP-402, KIP-612).

A connection has a place from its acceptance to its end, however it ends.  The number of places is limited in all, for
a listener, and for an address.  From its login to its end it also has a place for its principal, and their number is
limited, too.  The rate of new connections is limited separately, with ten seconds' worth at once:

* all together, and at each listener: `owed_s` is how long a listener accepts none, so that clients wait;
* from each address: `came` says how long a client that comes too fast is ignored.

As in Kafka, a connection over a rate does not count, and one that found no place does.  Rates are at least one per
second, and a lower rate does not prolong what is owed, so no wait is longer than a second, as in Kafka.
"""

from collections import Counter, OrderedDict
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.settings_connections import ConnectionRules, ListenerRules
from magnetar.broker.quotas.bucket import Bucket
from magnetar.broker.quotas.client_quotas import BURST_S, ClientQuotas
from magnetar.broker.security.errors import TooManyConnections
from magnetar.broker.security.model import Principal

ADDRESSES_MAX: Final = 10_000  # the one that came longest ago is forgotten: it mostly owes nothing


class Admission:
    """See the module's text.  Names of listeners are in capitals."""

    def __init__(self, clock: Clock, quotas: ClientQuotas) -> None:
        self._clock = clock
        self._quotas = quotas
        self._rules = ConnectionRules()
        self._rate: Bucket | None = None
        self._rates: dict[str, Bucket] = {}
        self._by_address: OrderedDict[str, Bucket] = OrderedDict()
        self.count = 0
        self._counts: Counter[str] = Counter()
        self._address_counts: Counter[str] = Counter()
        self._principal_counts: Counter[Principal] = Counter()

    def govern(self, rules: ConnectionRules) -> None:
        """Apply these limits from now on.  Existing connections stay, and what was used of a rate stays used."""
        self._rate = self._at_rate(rules.all_listeners, self._rate)
        rates = {name: self._at_rate(one, self._rates.get(name)) for name, one in rules.listeners.items()}
        self._rates = {name: bucket for name, bucket in rates.items() if bucket is not None}
        self._rules = rules

    def _at_rate(self, rules: ListenerRules, bucket: Bucket | None) -> Bucket | None:
        if rules.rate is None:
            return None
        rate = max(rules.rate, 1)  # with 0 Kafka lets one in a second, too
        if bucket is None:
            return Bucket(rate, BURST_S, self._clock.monotonic())
        bucket.change_rate(rate)
        return bucket

    # --- how fast they come ------------------------------------------------------------------------------------------

    def owed_s(self, listener: str) -> float:
        """The seconds until the listener may accept another connection."""
        now_s = self._clock.monotonic()
        owed_s = 0.0 if self._rate is None else self._rate.owed_s(now_s)
        own = self._rates.get(listener)
        return owed_s if own is None else max(owed_s, own.owed_s(now_s))

    def came(self, listener: str, address: str) -> float:
        """A connection was accepted: 0, or the seconds for which to ignore it before closing it."""
        now_s = self._clock.monotonic()
        rate = self._quotas.connection_rate(address)
        if rate is not None:
            wait_s = self._bucket_of(address, rate).use_unless_owing(1, now_s)
            if wait_s:
                return wait_s
        if self._rate is not None:
            self._rate.use(1, now_s)
        own = self._rates.get(listener)
        if own is not None:
            own.use(1, now_s)
        return 0.0

    def _bucket_of(self, address: str, rate: float) -> Bucket:
        bucket = self._by_address.get(address)
        if bucket is None:
            if len(self._by_address) >= ADDRESSES_MAX:
                self._by_address.popitem(last=False)
            bucket = self._by_address[address] = Bucket(rate, BURST_S, self._clock.monotonic())
        else:
            self._by_address.move_to_end(address)
            if bucket.rate != rate:
                bucket.change_rate(rate)
        return bucket

    # --- how many there are ------------------------------------------------------------------------------------------

    def take_place(self, listener: str, address: str) -> str | None:
        """None: the connection has a place for its address, which it gives back; otherwise why there is none."""
        rules = self._rules
        if self.count >= rules.all_listeners.connections_max:
            return f"{self.count} are open, as many as may be"
        own = rules.listeners.get(listener)
        if own is not None and self._counts[listener] >= own.connections_max:
            return f"{self._counts[listener]} are open at {listener}, as many as may be"
        if self._address_counts[address] >= rules.per_address.get(address, rules.per_address_max):
            return f"it has {self._address_counts[address]}, as many as may be"
        self.count += 1
        self._counts[listener] += 1
        self._address_counts[address] += 1
        return None

    def give_place(self, listener: str, address: str) -> None:
        self.count -= 1
        self._counts[listener] -= 1
        self._address_counts[address] -= 1
        if not self._address_counts[address]:
            del self._address_counts[address]

    def take_place_for(self, principal: Principal) -> None:
        """Give a connection that has logged in a place for its principal, which it gives back.

        Raises:
            TooManyConnections: there is none.
        """
        rules, count = self._rules, self._principal_counts[principal]
        if count >= rules.per_principal.get(str(principal), rules.per_principal_max):
            told = f"{principal} has as many connections as it may have ({count})"
            raise TooManyConnections(told).of(principal.name)
        self._principal_counts[principal] += 1

    def give_place_for(self, principal: Principal) -> None:
        self._principal_counts[principal] -= 1
        if not self._principal_counts[principal]:
            del self._principal_counts[principal]
