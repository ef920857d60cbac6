"""Consumer groups: which members consume what together (the classic group protocol), and how far they have got.

* `group`: one group's members, votes and generation, as bookkeeping without rules about time;
* `rebalance`: the state machine over it, with the clock's timers and reply callbacks;
* `coordinator`: all groups: finds, checks, describes, lists and deletes them;
* `offsets`: committed offsets, which are the cursors of the subscription with the group's name;
* `expiry`: which of them have had their time;
* `records`: the little about a group that outlives the process.

Topics are full names here (`persistent://tenant/namespace/name`); the protocols translate.
"""
