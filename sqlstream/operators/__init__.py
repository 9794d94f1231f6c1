"""Stateful operators: their state tables, and the SQL that advances them by one batch. They do not know the engine."""
