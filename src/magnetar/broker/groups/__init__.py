"""Consumer groups: which members share which partitions, and how far they have got.

* `group`: the members, votes and generation of one group of the classic protocol, without rules about time;
* `rebalance`: the state machine of the classic protocol, with the clock's timers and reply callbacks;
* `coordinator`: all groups: finds, checks, describes, lists and deletes them;
* `offsets`: committed offsets, which are the cursors of the subscription with the group's name;
* `consumer`, `streams`, `share`: groups whose assignments the server makes;
* `catalogue`: the broker's topics, as groups see them;
* `expiry`: which committed offsets have expired;
* `records`: what is stored about a group.

This room knows topics by full names (`persistent://tenant/namespace/name`); the doors translate.
"""
