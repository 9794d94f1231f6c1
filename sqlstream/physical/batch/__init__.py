"""A query as one batch in DuckDB: the answer over all rows at once, to print, and to compare what a job wrote with."""
