"""The provider `Pulsar`: records go to a topic of an Apache Pulsar cluster, or of a server that speaks its protocol."""
