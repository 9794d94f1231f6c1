"""How we talk to DuckDB: SQL text, stored types, the clock, errors."""
