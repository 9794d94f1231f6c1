"""How the code talks to DuckDB: SQL text, stored types, the clock, the hash of keys, errors."""
