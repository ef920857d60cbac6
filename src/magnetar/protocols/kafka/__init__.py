"""The Apache Kafka protocol: translation between its messages and the broker's rules, one file per API."""
