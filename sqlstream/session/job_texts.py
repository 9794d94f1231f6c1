"""Sentences about jobs, for people."""

from __future__ import annotations

from datetime import datetime

from sqlstream.jobs.job import Job
from sqlstream.jobs.progress import Progress
from sqlstream.storage.facts import FACTS


def ended_text(job: Job) -> str:
    """Return a line with a job's status, last batch, and numbers of rows since its first start; "" if it had no batch."""
    progress = job.progress
    if progress.batch is None:
        return ""
    text = f"{job.name}: {job.status.lower()} after batch {progress.batch}"
    return ", ".join([f"{text}, {progress.rows_in:,} rows in, {progress.rows_out:,} rows out", *losses(progress)])


def progress_text(job: Job) -> str:
    """Return a line with a job's last batch, the number of rows that it has read, and its watermark."""
    progress = job.progress
    if progress.batch is None:
        return f"{job.name}: no batch yet"
    text = _watermark(progress)
    watermark = "" if text is None else f", watermark {text.partition('.')[0]}"
    return f"{job.name}: batch {progress.batch}, {progress.rows_in:,} rows in{watermark}"


def _watermark(progress: Progress) -> str | None:
    if progress.watermark is None:
        return None
    return "end of input" if progress.watermark == datetime.max else str(progress.watermark)


def losses(progress: Progress) -> list[str]:
    """Return texts with the numbers of skipped and dropped rows, without zeros."""
    totals = progress.totals
    counts = {fact.loss: totals[fact.total] for facts in FACTS.values() for fact in facts if fact.loss}
    return [f"{n:,} {what.format('row' if n == 1 else 'rows')}" for what, n in counts.items() if n]


def older_totals(progress: Progress) -> dict[str, int]:
    """Return the totals that have an earlier name, by that name."""
    totals = progress.totals
    return {fact.older_total: totals[fact.total] for facts in FACTS.values() for fact in facts if fact.older_total}


def facts(job: Job) -> dict[str, str | None]:
    """Return the status, the progress and the error of a job, as texts by label; None if there is none yet."""
    progress = job.progress
    return {
        "job": job.name,
        "status": job.status,
        "batch": None if progress.batch is None else str(progress.batch),
        "rows in": f"{progress.rows_in:,}",
        "rows out": f"{progress.rows_out:,}",
        "watermark": _watermark(progress),
        "error": None if job.error is None else job.error.message,
    }
