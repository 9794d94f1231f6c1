"""Compares the rows that a job wrote with a batch query over all rows that it has read, and explains the differences."""

from __future__ import annotations

from sqlstream.jobs.verification.report import Difference, TableReport, Verification
from sqlstream.jobs.verification.verify import batch_query, verify_job

__all__ = ["Difference", "TableReport", "Verification", "batch_query", "verify_job"]
