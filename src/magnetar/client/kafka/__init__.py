"""A small blocking Kafka client, for programs that write many whole record batches.

It works with Magnetar and with Apache Kafka: it finds leaders, repeats requests that may be repeated until a
deadline, and turns all other errors into one sentence.  `cluster.py` knows the leaders and coordinators,
`connection.py` is one connection, and `producer.py` sends batches with several requests in flight.  `transactions.py`
and `groups.py` have the requests to coordinators, `acls.py` and `scram_users.py` those of administrators.  Only one
thread may use it at a time, and it must not be used across a fork.
"""
