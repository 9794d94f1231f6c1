"""Joins: interval and window joins, temporal joins, regular joins."""
