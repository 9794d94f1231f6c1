"""Operators whose result is a changelog: aggregates without windows, ranks, INTERSECT and EXCEPT, upsert sources."""
