"""Metrics of jobs for Prometheus, read from the warehouse when they are asked for."""
