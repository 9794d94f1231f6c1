"""What a worker does for a job, with or without Spark: scan splits, advance operators, run fragments, store results."""
