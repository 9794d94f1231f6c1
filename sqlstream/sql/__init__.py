"""From text to statements: Flink's streaming syntax over DuckDB's expressions, each node with its place in the text."""
