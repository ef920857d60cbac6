"""Groups of share consumers (KIP-932): their members, and the partitions from which each fetches.

Several members may fetch from one partition; the subscription with the group's name decides which records each gets.

* `assignor`: which member fetches from which partition;
* `group`: the state of a group: as in the consumer protocol, but without a holder for each partition;
* `coordinator`: heartbeats and descriptions.
"""
