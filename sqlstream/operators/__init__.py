"""Stateful operators: their state tables, and the SQL that moves them forward by one batch. No engine in sight."""
