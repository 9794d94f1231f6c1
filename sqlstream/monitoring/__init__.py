"""Metrics of jobs for Prometheus, read from the warehouse at each scrape."""
