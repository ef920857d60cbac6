"""Writing to topics: what `df.write` and `df.writeStream` with the format `magnetar` do.

`options.py` and `rows.py` (columns, partitions, batches) serve both; `batch.py` is the batch job, `stream.py` the
streaming query, `exactly_once.py` its transactions, `decisions.py` its stored decisions.
"""
