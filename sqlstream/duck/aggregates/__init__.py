"""Incremental aggregate functions: the SQL of their partial results, of merging these, and of the result."""
