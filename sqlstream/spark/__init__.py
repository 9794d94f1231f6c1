"""All code that uses PySpark: it makes a streaming DataFrame of a physical plan, runs operators in workers, and runs jobs."""
