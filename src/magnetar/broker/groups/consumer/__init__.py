"""The consumer group protocol (KIP-848): the server assigns partitions, and members take and give them one by one.

* `assignors`: which member gets which partition, as functions of what members subscribe to;
* `group`: one group's books: members, subscriptions, epochs, who holds each partition;
* `reconcile`: how a member gets from what it has to what it is to have;
* `checks`: what a request must say to be looked at;
* `heartbeats`: the state machine over them, with the clock's timers.
"""
