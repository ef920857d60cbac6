"""Groups of share consumers (KIP-932): who is a member, and of which partitions each fetches.

A partition may be several members'; which records each gets is decided by the subscription with the group's name.

* `assignor`: which member fetches of which partition;
* `group`: the books, which are those of the consumer protocol's groups without a holder for each partition;
* `coordinator`: heartbeats and descriptions.
"""
