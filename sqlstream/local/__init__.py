"""The engine without Spark: jobs in this process."""
