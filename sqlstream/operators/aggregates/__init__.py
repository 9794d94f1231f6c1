"""Incremental aggregates: the state of each group, and the results that are computed from it."""
