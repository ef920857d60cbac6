"""The program behind `magnetar clone`: it copies topics of an Apache Kafka cluster into a server, at the same offsets.

`source.py` reads the cluster, `clone.py` decides what is read next and sends it to the server by REST.  The program
stores nothing: the server knows how far each copy is.
"""
