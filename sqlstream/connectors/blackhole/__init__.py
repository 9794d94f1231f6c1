"""The `blackhole` connector: rows are counted, and nothing is kept."""
