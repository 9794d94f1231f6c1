"""The only pyspark code: physical plan to streaming DataFrame, the processor around operators, and the job runner."""
