"""From the user's settings to those of each layer: the store, the broker, the connections."""

import hmac
import os
from dataclasses import replace
from typing import Final

from magnetar.base.job_token import KEY_LABEL
from magnetar.base.limits import memory_bytes
from magnetar.base.settings import ServerSettings
from magnetar.base.settings_tls import ClientCertificates, TlsSettings
from magnetar.broker.groups.settings import GroupSettings
from magnetar.broker.jobs.model import PipelineKeys
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.transactions.settings import TransactionSettings
from magnetar.server.connection import ConnectionLimits
from magnetar.storage.local.settings import LocalStoreSettings

CONNECTION_BYTES_MAX: Final = 1 << 30  # the most memory for requests in flight, by default
# Of the files that the process may open, so many are not for connections of Kafka's and Pulsar's clients.  A thousand
# are for segments, journal, catalogue and metadata; HTTP has two shares besides, and held sockets have one.  If the
# process may open few files, each share is a sixteenth of them.
OPEN_FILES_RESERVE: Final = 2304
OPEN_FILES_SHARES: Final = 16
READ_BYTES_MIN: Final = 8 << 20  # the least memory for reads of segments; usually it equals the entry cache's


def store_settings(settings: ServerSettings) -> LocalStoreSettings:
    storage = settings.storage
    default = LocalStoreSettings()
    file_bytes = max(
        storage.journal_bytes // default.journal_file_count // 4096 * 4096, default.round_bytes_max
    )
    return replace(
        default,
        journal_sync_data=storage.journal_sync_data,
        journal_file_bytes=file_bytes,
        read_memory_bytes=min(max(storage.entry_cache_bytes, READ_BYTES_MIN), default.read_memory_bytes),
    )


def broker_settings(
    settings: ServerSettings, cluster_id: str, worker_token: str, sealing: tuple[bytes, bytes]
) -> BrokerSettings:
    topics = settings.topics
    groups = {name: getattr(settings.groups, name) for name in GroupSettings.__dataclass_fields__}
    return BrokerSettings(
        tenant=topics.tenant,
        namespace=topics.namespace,
        cluster_id=cluster_id,
        auto_create_topics=topics.auto_create,
        delete_topics=topics.may_delete,
        partition_count_default=topics.partition_count_default,
        replication_factor_default=topics.replication_factor_default,
        entry_cache_bytes=settings.storage.entry_cache_bytes,
        pulsar_message_bytes_max=settings.network.pulsar.message_bytes_max,
        retention_check_interval_ms=settings.storage.retention_check_interval_ms,
        transactions=TransactionSettings(
            settings.transactions.transaction_max_timeout_ms,
            settings.transactions.transactional_id_expiration_ms,
            settings.transactions.max_transactions_per_coordinator,
            settings.transactions.transaction_coordinator_enabled,
            settings.transactions.max_active_transactions_per_coordinator,
            settings.transactions.pulsar_transaction_max_timeout_ms,
        ),
        producer_id_expiration_ms=settings.producer_id_expiration_ms,
        producer_ids_max=settings.producer_ids_max,
        topic_defaults=topics.defaults,
        own_connections=settings.network.own_connections,
        kafka_listeners=[one.name for one in settings.network.listeners],
        authorization=settings.authorization,
        delegation_tokens=settings.delegation_tokens,
        compaction=settings.compaction,
        unacked_limits=settings.subscriptions.unacked_limits,
        failover_delay_ms=settings.subscriptions.failover_delay_ms,
        deduplication=settings.deduplication,
        tenancy=settings.tenancy,
        groups=GroupSettings(**groups),
        data_dir=str(settings.data_dir.resolve()),
        functions_enabled=settings.pipelines.functions_enabled,
        table_roots=settings.pipelines.table_roots,
        worker_listeners={
            one.name: one.has_tls
            for one in settings.network.listeners
            if not asks_for_certificate(settings.network.tls.get(one.name))
        },
        pipeline_keys=PipelineKeys(hmac.digest(worker_token.encode(), KEY_LABEL, "sha256"), *sealing),
        replicator_environment=os.environ,
        replicator_variables=settings.pipelines.replicator_variables,
        given={name: setting.text for name, setting in settings.given.items()},
    )


def connection_memory(settings: ServerSettings) -> int:
    """The bytes of memory for the requests in flight, of both protocols."""
    wanted = settings.network.queued_request_bytes_max
    return wanted if wanted > 0 else min(CONNECTION_BYTES_MAX, memory_bytes() // 4)


def connection_limits(settings: ServerSettings, open_files_max: int) -> ConnectionLimits:
    network = settings.network
    reserve = min(OPEN_FILES_RESERVE, open_files_max // 2)
    idle_s = network.idle_ms_max / 1000 if network.idle_ms_max > 0 else 0.0
    return ConnectionLimits(open_files_max - reserve, idle_s)


def asks_for_certificate(tls: TlsSettings | None) -> bool:
    """Whether clients must have a certificate."""
    return tls is not None and tls.client_certificates is ClientCertificates.REQUIRED
