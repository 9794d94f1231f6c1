"""Aggregate functions in Python: classes under `@udaf`."""
