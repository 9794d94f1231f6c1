"""Binding of FROM: joins of every kind, UNNEST, LATERAL, subqueries in WHERE."""
