"""How a plan runs: fragments of DuckDB SQL, exchanges of frames between them, and stateful operators."""
