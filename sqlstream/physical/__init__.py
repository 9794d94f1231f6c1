"""From a logical plan to one that runs: fragments of DuckDB SQL, exchanges between them, and stateful operators."""
