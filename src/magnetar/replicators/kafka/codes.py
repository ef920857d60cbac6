"""What errors of Kafka's client mean for a replicator: which side is at fault, and so what to do next.

An error that is in no table is the target's, and may end soon.
"""

from typing import Final

# Codes of Kafka's protocol.  A broker refuses a whole batch with them, though one record of it may be to blame.
POISON: Final = frozenset(
    (
        2,  # CORRUPT_MESSAGE; brokers also say so of a record without a key for a compacted topic
        10,  # MESSAGE_TOO_LARGE
        18,  # RECORD_LIST_TOO_LARGE
        32,  # INVALID_TIMESTAMP
        87,  # INVALID_RECORD
    )
)
REFUSED: Final = frozenset(
    (
        29,  # TOPIC_AUTHORIZATION_FAILED
        31,  # CLUSTER_AUTHORIZATION_FAILED
        30,  # GROUP_AUTHORIZATION_FAILED
        33,  # UNSUPPORTED_SASL_MECHANISM
        53,  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        58,  # SASL_AUTHENTICATION_FAILED
        -169,  # librdkafka's own code: a broker has refused the login
    )
)
ALL_BROKERS_DOWN: Final = -187
GAP: Final = -148  # librdkafka sends nothing after a batch that a broker has refused
NO_TOPIC: Final = 3
