"""Paths of Pulsar's admin API that Magnetar does not serve: they get 501 with one sentence, and are never ignored."""

from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from magnetar.admin.answers import Refused, unsupported
from magnetar.admin.routing import Router

router: Final = Router()
_METHODS: Final = ["GET", "PUT", "POST", "DELETE"]

# By the word in the path that names the feature.
FEATURES: Final[Mapping[str, str]] = {
    "antiAffinity": "Anti-affinity groups",
    "bookies": "BookKeeper",
    "broker-stats": "This form of statistics (see /metrics)",
    "coordinatorInternalStats": "A log of a transaction coordinator (transactions are metadata)",
    "deduplicationSnapshotInterval": "An interval of deduplication snapshots",
    "dispatcherPauseOnAckStatePersistent": "Pausing dispatch until acknowledgements are stored",
    "entryFilters": "Filtering entries in the broker",
    "failureDomains": "Failure domains",
    "functions": "Built-in functions, and files by a path (create and update take a function's file)",
    "internal-configuration": "A broker's internal configuration",
    "maxMessageSize": "A message size limit of one topic",
    "metadata": "Where schemas are stored",
    "migrate": "Cluster migration",
    "migration": "Cluster migration",
    "namespaceIsolationPolicies": "Namespace isolation",
    "offload": "Offloading",
    "offloadDeletionLagMs": "Offloading",
    "offloadPolicies": "Offloading",
    "offloadThreshold": "Offloading",
    "offloadThresholdInSeconds": "Offloading",
    "packages": "Pulsar's package store",
    "pendingAckInternalStats": "A log of pending acknowledgements (they are metadata)",
    "persistence": "A BookKeeper persistence policy",
    "replicatedSubscriptionStatus": "Replicating subscriptions",
    "removeOffloadPolicies": "Offloading",
    "resource-quotas": "Resource quotas",
    "resourcegroup": "A topic's own resource group (its namespace is in one)",
    "schemaAutoUpdateCompatibilityStrategy": "The old form of schemaCompatibilityStrategy",
    "shadowSource": "Shadow topics",
    "shadowTopics": "Shadow topics",
    "shutdown": "Stopping the server over HTTP (send it SIGTERM)",
    "sink": "Connectors of other packages",
    "sinks": "Connectors of other packages",
    "source": "Connectors of other packages",
    "sources": "Connectors of other packages",
    "split": "Splitting bundles",
    "topicHashPositions": "Places of topics in a bundle",
    "transactionBufferInternalStats": "Topics with snapshots of transactions (they are metadata)",
    "transactionCoordinator": "More than one transaction coordinator",
    "worker": "Pulsar Functions' API",
    "worker-stats": "Pulsar Functions' API",
}


async def unserved(path: str) -> Response:
    for word in path.split("/"):
        if word in FEATURES:
            raise unsupported(FEATURES[word])
    raise Refused(404, f"there is nothing at /admin/{path[:200]}")


router.add("/admin/{path:path}", unserved, _METHODS, in_schema=False)
