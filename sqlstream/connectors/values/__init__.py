"""Rows that stand in the query itself, as a source."""
