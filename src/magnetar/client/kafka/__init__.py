"""A small blocking Kafka client, for those that write a lot and whole record batches at a time.

It speaks with Magnetar and with Apache Kafka alike: leaders are followed, what may be tried again is tried again until
a deadline, and everything else is one sentence.  `cluster.py` knows who leads and coordinates what, `connection.py` one
broker, `producer.py` sends batches with several requests in flight, `transactions.py` and `groups.py` are the requests
to coordinators, `acls.py` and `scram_users.py` what administrators ask.  It is used by one thread at a time, and never
across a fork.
"""
