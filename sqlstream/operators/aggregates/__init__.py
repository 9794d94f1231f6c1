"""Aggregates, incrementally: per call, and per group."""
