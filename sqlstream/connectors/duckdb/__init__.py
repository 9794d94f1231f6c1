"""The `duckdb` connector: a table of a DuckDB file, for lookups."""
