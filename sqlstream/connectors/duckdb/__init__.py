"""The `duckdb` connector: a table of a DuckDB file, which jobs write, and in which they look up rows."""
