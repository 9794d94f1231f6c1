"""The batch form of a job's query: one DuckDB query over all rows, to show, and to compare with what the job wrote."""
