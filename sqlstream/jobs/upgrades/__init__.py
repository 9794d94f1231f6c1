"""Upgrades of jobs to changed queries: the change of each operator, source and sink, and the state that follows."""
