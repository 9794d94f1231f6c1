"""Protobuf: descriptors of a file or of a schema registry, messages, and what rows are as messages."""
