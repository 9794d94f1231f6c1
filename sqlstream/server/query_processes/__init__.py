"""Runs queries of clients in their own processes, which can be killed: DuckDB ignores interrupts inside a function."""
