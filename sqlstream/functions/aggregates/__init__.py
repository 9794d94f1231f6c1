"""Aggregate functions in Python: what `@udaf` makes of a class."""
