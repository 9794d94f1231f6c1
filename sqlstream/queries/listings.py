"""Queries that list what a warehouse has, for SHOW and for commands."""

from __future__ import annotations

# What SHOW JOBS and `sqlstream jobs` show.
JOBS = (
    "SELECT job, status, version, watermark, rows_in, rows_out, started_at, pid,"
    " split_part(error, chr(10), 1) AS error FROM sqlstream.jobs ORDER BY job"
)
# What SHOW SAVEPOINTS and `sqlstream savepoints` show; an order comes behind it.
SAVEPOINTS = (
    "SELECT savepoint, job, version, taken_at, watermark, rows, bytes, format,"
    " split_part(error, chr(10), 1) AS error FROM sqlstream.savepoints"
)
