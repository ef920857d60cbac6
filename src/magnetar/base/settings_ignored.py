"""Keys of Kafka 4.3, of earlier versions and of KoP that have no effect here, grouped by the reason.

The server accepts them so that an existing properties file works unchanged; it logs once, at INFO, which of them had no
effect.  It never reads or shows their values: some are passwords.
"""

from typing import Final

_BY_REASON: Final[dict[str, str]] = {
    "rules hold for Kafka's side as for Pulsar's, and changes of them at once": """
        kafkaEnableAuthorizationForceGroupIdCheck kopAuthorizationCacheMaxCountPerConnection
        kopAuthorizationCacheRefreshMs
    """,
    "OAUTHBEARER is set up by Kafka's own keys": """
        kopOauth2AuthenticateCallbackHandler kopOauth2ConfigFile
    """,
    "keys of identity providers hold while these cannot be asked, and are read again when a token names another": """
        openIDCacheExpirationSeconds openIDCacheSize openIDHttpConnectionTimeoutMillis openIDHttpReadTimeoutMillis
        openIDKeyIdCacheMissRefreshSeconds
    """,
    "scopes of tokens are not looked at": """
        sasl.oauthbearer.scope.claim.name
    """,
    "Kafka itself does not look at it: the users of PLAIN are in plain.sasl.jaas.config": """
        sasl.jaas.config
    """,
    "GSSAPI (Kerberos) is not served": """
        gssapi.connections.max.reauth.ms gssapi.sasl.jaas.config sasl.kerberos.kinit.cmd
        sasl.kerberos.min.time.before.relogin
        sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name
        sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    """,
    "credentials of SCRAM are made by clients, at run time": """
        scram-sha-256.sasl.jaas.config scram-sha-512.sasl.jaas.config
    """,
    "this server logs in nowhere": """
        sasl.client.callback.handler.class
        sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
        sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
        sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
        sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
        sasl.mechanism.controller.protocol sasl.mechanism.inter.broker.protocol
        sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
        sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
        sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
        sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
        sasl.oauthbearer.assertion.private.key.file
        sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
        sasl.oauthbearer.client.credentials.client.id
        sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.jwt.retriever.class
        sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url
    """,
    "this server logs in nowhere as a Pulsar client": """
        brokerClientAuthenticationParameters brokerClientAuthenticationPlugin
        brokerClientCertificateFilePath brokerClientKeyFilePath brokerClientSslProvider brokerClientTlsCiphers
        brokerClientTlsEnabled brokerClientTlsEnabledWithKeyStore brokerClientTlsKeyStore
        brokerClientTlsKeyStorePassword brokerClientTlsKeyStoreType brokerClientTlsProtocols
        brokerClientTlsTrustStore brokerClientTlsTrustStorePassword brokerClientTlsTrustStoreType
        brokerClientTrustCertsFilePath
    """,
    "OpenSSL does what Java's security providers do elsewhere": """
        kopSslKeymanagerAlgorithm kopSslProtocol kopSslProvider kopSslSecureRandomImplementation
        kopSslTrustmanagerAlgorithm security.providers ssl.engine.factory.class
        ssl.keymanager.algorithm ssl.protocol ssl.provider ssl.secure.random.implementation
        ssl.trustmanager.algorithm tlsProvider webServiceTlsProvider
    """,
    "files with certificates are looked at every two seconds": """
        tlsCertRefreshCheckDurationSec
    """,
    "this server connects to no broker over TLS": """
        kopTlsEnabledWithBroker ssl.endpoint.identification.algorithm
    """,
    "a new certificate is taken from its file whatever names it has": """
        ssl.allow.dn.changes ssl.allow.san.changes
    """,
    "there is no KRaft controller: metadata lies in an embedded database": """
        broker.heartbeat.interval.ms broker.session.timeout.ms config.providers
        controller.quorum.append.linger.ms controller.quorum.auto.join.enable
        controller.quorum.bootstrap.servers controller.quorum.election.backoff.max.ms
        controller.quorum.election.timeout.ms controller.quorum.fetch.max.bytes
        controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms
        controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms controller.quorum.voters
        controller.quota.window.num controller.quota.window.size.seconds controller.socket.timeout.ms
        early.start.listeners initial.broker.registration.timeout.ms metadata.log.dir
        metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
        metadata.log.segment.bytes metadata.log.segment.ms metadata.max.idle.interval.ms
        metadata.max.retention.bytes metadata.max.retention.ms process.roles
    """,
    "brokers do not copy logs from one another": """
        alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
        auto.leader.rebalance.enable controlled.shutdown.enable cordoned.log.dirs
        inter.broker.listener.name leader.imbalance.check.interval.seconds
        leader.imbalance.per.broker.percentage num.replica.alter.log.dirs.threads num.replica.fetchers
        replica.fetch.backoff.ms replica.fetch.max.bytes replica.fetch.min.bytes
        replica.fetch.response.max.bytes replica.fetch.wait.max.ms
        replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms replica.selector.class
        replica.socket.receive.buffer.bytes replica.socket.timeout.ms replication.quota.window.num
        replication.quota.window.size.seconds security.inter.broker.protocol
    """,
    "tiered storage is not available here": """
        follower.fetch.last.tiered.offset.enable remote.fetch.max.wait.ms
        remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
        remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
        remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
        remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
        remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
        remote.log.manager.follower.thread.pool.size remote.log.manager.task.interval.ms
        remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes
        remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path
        remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name
        remote.log.reader.max.pending.tasks remote.log.reader.threads
        remote.log.storage.manager.class.name remote.log.storage.manager.class.path
        remote.log.storage.manager.impl.prefix remote.log.storage.system.enable
    """,
    "share groups have one assignor": """
        group.share.assignors
    """,
    "what share groups have acknowledged is in the metadata store, not in a topic": """
        share.coordinator.append.linger.ms share.coordinator.cached.buffer.max.bytes
        share.coordinator.load.buffer.size share.coordinator.snapshot.update.records.per.snapshot
        share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
        share.coordinator.state.topic.num.partitions share.coordinator.state.topic.replication.factor
        share.coordinator.state.topic.segment.bytes share.coordinator.threads
        share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests
    """,
    "groups and their offsets are kept in the metadata store, not in a topic": """
        group.coordinator.append.linger.ms group.coordinator.background.threads
        group.coordinator.cached.buffer.max.bytes group.coordinator.rebalance.protocols
        group.coordinator.threads offsets.commit.timeout.ms offsets.load.buffer.size
        offsets.topic.compression.codec offsets.topic.num.partitions offsets.topic.replication.factor
        offsets.topic.segment.bytes
    """,
    "transactions need no topic of their own and no work in the background that could be tuned": """
        add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms kafkaBrokerId
        kafkaTransactionCoordinatorEnabled kafkaTransactionProducerIdsStoredOnPulsar
        kafkaTransactionRecoveryNumThreads kafkaTransactionalIdExpirationEnable
        kafkaTransactionalIdExpirationMs kafkaTransactionsRemoveExpiredTransactionalIdCleanupIntervalMs
        kafkaTxnAbortTimedOutTransactionCleanupIntervalMs kafkaTxnLogTopicNumPartitions
        kafkaTxnProducerStateTopicNumPartitions kafkaTxnProducerStateTopicSnapshotIntervalSeconds
        kafkaTxnPurgeAbortedTxnIntervalSeconds
        transaction.abort.timed.out.transaction.cleanup.interval.ms
        transaction.partition.verification.enable
        transaction.remove.expired.transaction.cleanup.interval.ms
        transaction.state.log.load.buffer.size transaction.state.log.min.isr
        transaction.state.log.num.partitions transaction.state.log.replication.factor
        transaction.state.log.segment.bytes transaction.two.phase.commit.enable
    """,
    "one log is compacted at a time, a megabyte after the other": """
        log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size log.cleaner.threads
    """,
    "quotas and policies are not available yet": """
        alter.config.policy.class.name client.quota.callback.class create.topic.policy.class.name
        max.request.partition.size.limit quota.window.num quota.window.size.seconds
    """,
    "it describes a part of Kafka that this server does not have": """
        background.threads broker.id.generation.enable control.plane.listener.name
        delete.records.purgatory.purge.interval.requests fetch.purgatory.purge.interval.requests
        kafka.metrics.polling.interval.secs kafka.metrics.reporters log.dir.failure.timeout.ms
        log.flush.offset.checkpoint.interval.ms log.flush.start.offset.checkpoint.interval.ms
        metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
        num.io.threads num.network.threads num.recovery.threads.per.data.dir
        password.encoder.cipher.algorithm password.encoder.iterations password.encoder.key.length
        password.encoder.keyfactory.algorithm password.encoder.old.secret password.encoder.secret
        producer.purgatory.purge.interval.requests queued.max.requests request.timeout.ms
        reserved.broker.max.id socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
        socket.listen.backlog.size socket.receive.buffer.bytes socket.send.buffer.bytes
    """,
    "a client may push a mebibyte of metrics at a time": "telemetry.max.bytes",
    "there is no ZooKeeper: metadata lies in an embedded database": """
        groupIdZooKeeperPath zookeeper.connect zookeeper.connection.timeout.ms
        zookeeper.max.in.flight.requests zookeeper.metadata.migration.enable
        zookeeper.session.timeout.ms zookeeper.set.acl zookeeper.ssl.client.enable
    """,
    "the formats and protocol versions of before Kafka 4 are gone": """
        inter.broker.protocol.version log.message.downconversion.enable log.message.format.version
    """,
    "Kafka 4 replaced it: set log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms": """
        log.message.timestamp.difference.max.ms
    """,
    "it tells Pulsar how to load and run KoP, which is not needed here": """
        allowAutoTopicCreationType brokerDeleteInactiveTopicsEnabled brokerEntryMetadataInterceptors
        brokerLookupTimeoutMs kopMigrationEnable kopMigrationServicePort
        narExtractionDirectory protocolHandlerDirectory
    """,
    "batches are stored as they came and indexed by offset, whatever their format": """
        failedAuthenticationDelayMs kafkaCompressionType maxQueuedRequests maxReadEntriesNum
        numSendKafkaResponseThreads requestTimeoutMs skipMessagesWithoutIndex
    """,
    "there are no system topics: groups and offsets are kept in the metadata store": """
        kafkaEnableMultiTenantMetadata kafkaManageSystemNamespaces kafkaMetaMaxPendingMessages
        kafkaMetadataNamespace kafkaMetadataTenant kopAllowedNamespaces offsetCommitTimeoutMs
        offsetsMessageTTL offsetsTopicCompressionCodec offsetsTopicNumPartitions
        systemTopicRetentionSizeInMB
    """,
    "the schema registry is not available yet": """
        kopSchemaRegistryEnable kopSchemaRegistryNamespace kopSchemaRegistryPort
        kopSchemaRegistryTopicName
    """,
    "metrics are always there, with their own settings": """
        kopEnableGroupLevelConsumerMetrics kopPrometheusStatsLatencyRolloverSeconds
    """,
}

IGNORED_KEYS: Final[dict[str, str]] = {
    name: reason for reason, names in _BY_REASON.items() for name in names.split()
}

# Kafka's settings of single listeners (listener.name.<listener>.<key>) that concern neither TLS nor SASL, nor how
# many clients may connect.
IGNORED_PREFIXES: Final[dict[str, str]] = {
    "listener.name.": "it is the same for all listeners here",
}
