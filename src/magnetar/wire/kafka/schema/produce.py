"""Produce: key 0.

v3 record batches of magic 2; v7 zstd (KIP-110); v8 errors per record (KIP-467); v9 flexible; v10 the new
leader in the answer (KIP-951); v12 transactions without AddPartitionsToTxn (KIP-890); v13 topics by id
(KIP-516).
"""

from typing import Final

from magnetar.wire.kafka.schema.model import INT16, INT32, INT64, RECORDS, STRING, UUID, Api, F, S

_CURRENT_LEADER: Final = S(
    "LeaderIdAndEpoch",
    F("leader_id", INT32, "10+", default=-1),
    F("leader_epoch", INT32, "10+", default=-1),
)

PRODUCE: Final = Api(
    name="Produce",
    key=0,
    versions="3-13",
    flexible="9+",
    request=(
        F("transactional_id", STRING, "3+", nullable="3+", default=None),
        F("acks", INT16),
        F("timeout_ms", INT32),
        F("topic_data", [S(
            "TopicProduceData",
            F("name", STRING, "0-12"),
            F("topic_id", UUID, "13+"),
            F("partition_data", [S(
                "PartitionProduceData",
                F("index", INT32),
                F("records", RECORDS, nullable="0+"),
            )]),
        )]),
    ),
    response=(
        F("responses", [S(
            "TopicProduceResponse",
            F("name", STRING, "0-12"),
            F("topic_id", UUID, "13+"),
            F("partition_responses", [S(
                "PartitionProduceResponse",
                F("index", INT32),
                F("error_code", INT16),
                F("base_offset", INT64),
                F("log_append_time_ms", INT64, "2+", default=-1),
                F("log_start_offset", INT64, "5+", default=-1),
                F("record_errors", [S(
                    "BatchIndexAndErrorMessage",
                    F("batch_index", INT32, "8+"),
                    F("batch_index_error_message", STRING, "8+", nullable="8+", default=None),
                )], "8+"),
                F("error_message", STRING, "8+", nullable="8+", default=None),
                F("current_leader", _CURRENT_LEADER, "10+", tag=0, tagged="10+"),
            )]),
        )]),
        F("throttle_time_ms", INT32, "1+"),
        F("node_endpoints", [S(
            "NodeEndpoint",
            F("node_id", INT32, "10+"),
            F("host", STRING, "10+"),
            F("port", INT32, "10+"),
            F("rack", STRING, "10+", nullable="10+", default=None),
        )], "10+", tag=0, tagged="10+"),
    ),
)  # fmt: skip
