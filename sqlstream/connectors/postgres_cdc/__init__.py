"""The `postgres-cdc` connector: the rows of a table of a PostgreSQL server, and then every change of them."""
