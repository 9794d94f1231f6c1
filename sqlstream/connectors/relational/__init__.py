"""Code that the database connectors share: SQL dialects, checks of a table's columns, exactly-once batches, lookups."""
