"""The `kafka` connector: topics of Kafka."""
