"""The table between the compiled steps: one row of int64 for each entry that has rows of its own.

`compiled_scan.py` fills it, the engine decompresses what it names, `compiled_fill.py` makes columns of it.
"""

from typing import Final

(
    KIND,
    CODEC,  # the protocol's own number
    STORED_AT,  # the record of the store, in the data
    STORED_END,
    PAYLOAD_AT,  # what the client sent
    SOURCE,  # where the body is: IN_DATA, IN_EXPANDED
    BODY_AT,  # Kafka's records, Pulsar's messages or the message itself
    BODY_SIZE,
    PLAIN_SIZE,  # of a compressed Pulsar body, as its sender says
    COUNT,  # records or messages
    BASE_OFFSET,
    LAST_OFFSET,
    TIME_MS,  # the batch's first timestamp, or the publish time
    STAMPED_MS,  # a batch's greatest timestamp: the time of all its records when IS_STAMPED
    IS_STAMPED,
    METADATA_AT,  # Pulsar's MessageMetadata
    METADATA_END,
    LEDGER_ID,
    ENTRY_ID,
    SEQUENCE_ID,
    PRODUCER_AT,  # Pulsar's producer name, in the data
    PRODUCER_SIZE,
    TABLE_WIDTH,
) = range(23)

KAFKA: Final = 0
PULSAR_BATCH: Final = 1
PULSAR_MESSAGE: Final = 2
OTHER: Final = 3  # chunks, what is encrypted, what is damaged: left to Python
DAMAGED: Final = 4  # its records do not add up

IN_DATA: Final = 0
IN_EXPANDED: Final = 1

# What a scan says in the end.
CONSUMED, LAST_SEEN, CORRUPT_AT, FACTS_WIDTH = range(4)

# What is filled: rows, and how far each buffer goes.
(
    ROWS,
    KEY_END,
    VALUE_END,
    PAIRS,
    NAMES_END,
    CONTENTS_END,
    PROPERTIES,
    PROPERTY_NAMES_END,
    PROPERTY_VALUES_END,
    HEADERS_AS_PROPERTIES,  # Kafka's headers that Pulsar's clients would see: left to Python
    ENDS_WIDTH,
) = range(11)

# The window, as numbers: all inclusive.
FROM_OFFSET, LAST_WANTED, FROM_MS, LAST_MS, WINDOW_WIDTH = range(5)

# Columns to make, as numbers.
WANT_KEY, WANT_VALUE, WANT_OFFSET, WANT_TIMESTAMP, WANT_TYPE, WANT_HEADERS, WANT_PULSAR, WANTS_WIDTH = range(
    8
)

STORED_BYTES_MIN: Final = 40 + 6 + 10  # a record's header, an entry's, and the least that a client sends

# Where an encoded batch lies, and what its header says.
CUT_BEGIN, CUT_END, CUT_COUNT, CUT_BASE_MS, CUT_GREATEST_MS, CUT_WIDTH = range(6)

# What a call has encoded.
DONE_BATCHES, DONE_ROWS, DONE_NEEDED, DONE_WIDTH = range(4)

SCRATCH_WIDTH: Final = 16  # numbers that compiled code notes for itself
