"""The consumer group protocol (KIP-848): the server assigns partitions, and members take and release them one by one.

* `assignors`: which member gets which partition, as functions of what members subscribe to;
* `group`: the state of one group: members, subscriptions, epochs, the holder of each partition;
* `reconcile`: how a member gets from its present partitions to its target;
* `checks`: what every request must pass;
* `heartbeats`: the state machine over these, with the clock's timers.
"""
