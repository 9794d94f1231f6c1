"""From text to statements: Flink's streaming syntax over DuckDB's expressions, where every part knows its position."""
