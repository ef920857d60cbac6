"""The provider `Kafka`: records go to a topic of an Apache Kafka cluster, or of a server that speaks its protocol."""
