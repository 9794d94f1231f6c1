"""Queries of clients run in processes of their own, which can be killed: DuckDB heeds no interrupt inside one function."""
