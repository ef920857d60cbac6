"""Producer identity and transactions: InitProducerId, and what a transactional producer sends.

InitProducerId: v2 flexible; v3 the producer names its old id and epoch (KIP-360); v5 transactions v2
(KIP-890); v6 two-phase commit (KIP-939).
"""

from typing import Final

from magnetar.wire.kafka.schema.model import BOOLEAN, INT8, INT16, INT32, INT64, STRING, Api, F, S

INIT_PRODUCER_ID: Final = Api(
    name="InitProducerId",
    key=22,
    versions="0-6",
    flexible="2+",
    request=(
        F("transactional_id", STRING, nullable="0+"),
        F("transaction_timeout_ms", INT32),
        F("producer_id", INT64, "3+", default=-1),
        F("producer_epoch", INT16, "3+", default=-1),
        F("enable_2pc", BOOLEAN, "6+"),
        F("keep_prepared_txn", BOOLEAN, "6+"),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("producer_id", INT64, default=-1),
        F("producer_epoch", INT16),
        F("ongoing_txn_producer_id", INT64, "6+", default=-1),
        F("ongoing_txn_producer_epoch", INT16, "6+", default=-1),
    ),
)

_PARTITIONS_TO_ADD: Final = S(
    "AddPartitionsToTxnTopic",
    F("name", STRING),
    F("partitions", [INT32]),
)
_PARTITIONS_ADDED: Final = S(
    "AddPartitionsToTxnTopicResult",
    F("name", STRING),
    F("results_by_partition", [S(
        "AddPartitionsToTxnPartitionResult",
        F("partition_index", INT32),
        F("partition_error_code", INT16),
    )]),
)  # fmt: skip

ADD_PARTITIONS_TO_TXN: Final = Api(
    name="AddPartitionsToTxn",  # v4: several transactions at once, from brokers (KIP-890)
    key=24,
    versions="0-5",
    flexible="3+",
    request=(
        F("transactions", [S(
            "AddPartitionsToTxnTransaction",
            F("transactional_id", STRING, "4+"),
            F("producer_id", INT64, "4+"),
            F("producer_epoch", INT16, "4+"),
            F("verify_only", BOOLEAN, "4+"),
            F("topics", [_PARTITIONS_TO_ADD], "4+"),
        )], "4+"),
        F("v3_and_below_transactional_id", STRING, "0-3"),
        F("v3_and_below_producer_id", INT64, "0-3"),
        F("v3_and_below_producer_epoch", INT16, "0-3"),
        F("v3_and_below_topics", [_PARTITIONS_TO_ADD], "0-3"),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16, "4+"),
        F("results_by_transaction", [S(
            "AddPartitionsToTxnResult",
            F("transactional_id", STRING, "4+"),
            F("topic_results", [_PARTITIONS_ADDED], "4+"),
        )], "4+"),
        F("results_by_topic_v3_and_below", [_PARTITIONS_ADDED], "0-3"),
    ),
)  # fmt: skip

ADD_OFFSETS_TO_TXN: Final = Api(
    name="AddOffsetsToTxn",
    key=25,
    versions="0-4",
    flexible="3+",
    request=(
        F("transactional_id", STRING),
        F("producer_id", INT64),
        F("producer_epoch", INT16),
        F("group_id", STRING),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
    ),
)

END_TXN: Final = Api(
    name="EndTxn",  # v5: the answer carries a new epoch (KIP-890)
    key=26,
    versions="0-5",
    flexible="3+",
    request=(
        F("transactional_id", STRING),
        F("producer_id", INT64),
        F("producer_epoch", INT16),
        F("committed", BOOLEAN),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("producer_id", INT64, "5+", default=-1),
        F("producer_epoch", INT16, "5+", default=-1),
    ),
)

WRITE_TXN_MARKERS: Final = Api(
    name="WriteTxnMarkers",  # v2: whether the marker's epoch is that of the next transaction (KIP-1228)
    key=27,
    versions="1-2",
    flexible="1+",
    request=(
        F("markers", [S(
            "WritableTxnMarker",
            F("producer_id", INT64),
            F("producer_epoch", INT16),
            F("transaction_result", BOOLEAN),
            F("topics", [S(
                "WritableTxnMarkerTopic",
                F("name", STRING),
                F("partition_indexes", [INT32]),
            )]),
            F("coordinator_epoch", INT32),
            F("transaction_version", INT8, "2+"),
        )]),
    ),
    response=(
        F("markers", [S(
            "WritableTxnMarkerResult",
            F("producer_id", INT64),
            F("topics", [S(
                "WritableTxnMarkerTopicResult",
                F("name", STRING),
                F("partitions", [S(
                    "WritableTxnMarkerPartitionResult",
                    F("partition_index", INT32),
                    F("error_code", INT16),
                )]),
            )]),
        )]),
    ),
)  # fmt: skip

TXN_OFFSET_COMMIT: Final = Api(
    name="TxnOffsetCommit",  # v3: fenced by the group's generation (KIP-447)
    key=28,
    versions="0-5",
    flexible="3+",
    request=(
        F("transactional_id", STRING),
        F("group_id", STRING),
        F("producer_id", INT64),
        F("producer_epoch", INT16),
        F("generation_id", INT32, "3+", default=-1),
        F("member_id", STRING, "3+"),
        F("group_instance_id", STRING, "3+", nullable="3+", default=None),
        F("topics", [S(
            "TxnOffsetCommitRequestTopic",
            F("name", STRING),
            F("partitions", [S(
                "TxnOffsetCommitRequestPartition",
                F("partition_index", INT32),
                F("committed_offset", INT64),
                F("committed_leader_epoch", INT32, "2+", default=-1),
                F("committed_metadata", STRING, nullable="0+"),
            )]),
        )]),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("topics", [S(
            "TxnOffsetCommitResponseTopic",
            F("name", STRING),
            F("partitions", [S(
                "TxnOffsetCommitResponsePartition",
                F("partition_index", INT32),
                F("error_code", INT16),
            )]),
        )]),
    ),
)  # fmt: skip

DESCRIBE_PRODUCERS: Final = Api(
    name="DescribeProducers",
    key=61,
    versions="0",
    flexible="0+",
    request=(
        F("topics", [S(
            "TopicRequest",
            F("name", STRING),
            F("partition_indexes", [INT32]),
        )]),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("topics", [S(
            "TopicResponse",
            F("name", STRING),
            F("partitions", [S(
                "PartitionResponse",
                F("partition_index", INT32),
                F("error_code", INT16),
                F("error_message", STRING, nullable="0+", default=None),
                F("active_producers", [S(
                    "ProducerState",
                    F("producer_id", INT64),
                    F("producer_epoch", INT32),
                    F("last_sequence", INT32, default=-1),
                    F("last_timestamp", INT64, default=-1),
                    F("coordinator_epoch", INT32),
                    F("current_txn_start_offset", INT64, default=-1),
                )]),
            )]),
        )]),
    ),
)  # fmt: skip

DESCRIBE_TRANSACTIONS: Final = Api(
    name="DescribeTransactions",
    key=65,
    versions="0",
    flexible="0+",
    request=(F("transactional_ids", [STRING]),),
    response=(
        F("throttle_time_ms", INT32),
        F("transaction_states", [S(
            "TransactionState",
            F("error_code", INT16),
            F("transactional_id", STRING),
            F("transaction_state", STRING),
            F("transaction_timeout_ms", INT32),
            F("transaction_start_time_ms", INT64),
            F("producer_id", INT64),
            F("producer_epoch", INT16),
            F("topics", [S(
                "TopicData",
                F("topic", STRING),
                F("partitions", [INT32]),
            )]),
        )]),
    ),
)  # fmt: skip

LIST_TRANSACTIONS: Final = Api(
    name="ListTransactions",  # v1: by duration (KIP-994); v2: by pattern (KIP-1152)
    key=66,
    versions="0-2",
    flexible="0+",
    request=(
        F("state_filters", [STRING]),
        F("producer_id_filters", [INT64]),
        F("duration_filter", INT64, "1+", default=-1),
        F("transactional_id_pattern", STRING, "2+", nullable="2+", default=None),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("unknown_state_filters", [STRING]),
        F("transaction_states", [S(
            "TransactionState",
            F("transactional_id", STRING),
            F("producer_id", INT64),
            F("transaction_state", STRING),
        )]),
    ),
)  # fmt: skip
