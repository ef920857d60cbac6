"""The provider `Kinesis`: records go to a stream of Amazon Kinesis."""
