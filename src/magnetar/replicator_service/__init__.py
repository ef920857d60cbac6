"""`magnetar replicator-service`: the deployment B of PIP-18, the replicator service on the broker's host.

Pulsar's brokers replicate to it as to a cluster, and it sends their messages to systems outside.  `service` is the
process, `session` a broker's connection, `lane` a topic's way to its target, `entries` turns messages into records.
"""
