"""What becomes of calls of aggregate functions that go on: SQL for partial results, for merging them, and for the result."""
