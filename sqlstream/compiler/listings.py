"""Queries that list what a warehouse has, for SHOW and for commands."""

from __future__ import annotations

from sqlstream.duck.sql import quote_text

# The query of SHOW JOBS and `sqlstream jobs`.
JOBS = (
    "SELECT job, status, version, watermark, rows_in, rows_out, started_at, pid, ties,"
    " split_part(error, chr(10), 1) AS error FROM sqlstream.jobs ORDER BY job"
)
# The query of SHOW SAVEPOINTS and `sqlstream savepoints`, without its ORDER BY.
SAVEPOINTS = (
    "SELECT savepoint, job, version, taken_at, watermark, rows, bytes, format,"
    " split_part(error, chr(10), 1) AS error FROM sqlstream.savepoints"
)


def savepoints_of(job: str | None) -> str:
    """Return the query that lists the savepoints of a job, or of all jobs."""
    of_job = f" WHERE lower(job) = {quote_text(job.lower())}" if job is not None else ""
    return f"{SAVEPOINTS}{of_job} ORDER BY taken_at, savepoint"
