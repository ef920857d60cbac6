"""Which consumer gets the next message: the four subscription types as state machines without I/O, clock or coroutines.

* `model`: what goes in and out: units, consumers, actions, and the interface that all four share;
* `exclusive`, `failover`: one active consumer, in the order of the log;
* `shared`: round robin; `key_shared`: every key to one consumer at a time;
* `multi`: what the last two share: which consumer holds what, redelivery, limits of unacknowledged messages, delayed
  delivery;
* `index`, `redelivery`, `delayed`, `ring`: the containers they are made of, each with one claim about its cost;
* `hashing`, `selectors`: keys to slots, slots to consumers.

docs/internals/dispatch.md tells the invariants; tests/models/dispatch.py holds all of it to them.
"""
