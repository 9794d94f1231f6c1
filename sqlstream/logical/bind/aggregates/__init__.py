"""Binding of GROUP BY."""
