"""Operators whose result changes."""
