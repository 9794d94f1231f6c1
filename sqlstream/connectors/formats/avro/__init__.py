"""Avro: schemas, messages with and without a schema registry, and what rows are as messages."""
