"""Producer identity and transactions: InitProducerId, and what a transactional producer sends.

InitProducerId: v2 flexible; v3 the producer names its old id and epoch (KIP-360); v5 transactions v2
(KIP-890); v6 two-phase commit (KIP-939).
"""

from typing import Final

from magnetar.wire.kafka.schema.model import BOOLEAN, INT16, INT32, INT64, STRING, Api, F

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
