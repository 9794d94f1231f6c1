"""The `postgresql` connector: a table of a PostgreSQL server, for lookups."""
