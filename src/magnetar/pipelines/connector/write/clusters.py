"""The connections of this process: opened once, and used by every task that runs in it.

Spark forks its Python workers, and each runs many tasks.  A connection must not pass a fork, and opening one for each
micro-batch would cost as much as the batch.
"""

import os

from magnetar.client.kafka.cluster import Cluster
from magnetar.client.kafka.entrance import Entrance
from magnetar.pipelines.connector.write.options import WriteOptions

_clusters: dict[tuple[int, str, str, str, int, int], Cluster] = {}


def cluster_for(options: WriteOptions) -> Cluster:
    """This process's cluster for these options.  Raises ConfigError: its context cannot be used."""
    key = (
        os.getpid(),
        options.bootstrap,
        options.context,
        options.client_id,
        options.request_timeout_ms,
        options.delivery_timeout_ms,
    )
    found = _clusters.get(key)
    if found is None:
        found = _clusters[key] = Cluster(
            options.bootstrap,
            client_id=options.client_id,
            request_timeout_s=options.request_timeout_ms / 1000,
            patience_s=options.delivery_timeout_ms / 1000,
            entrance=Entrance.of(options.context) if options.context else None,
        )
    return found
