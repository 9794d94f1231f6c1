"""How rows stand in files: Parquet, JSON lines, CSV, Debezium; and what happens to malformed ones."""
