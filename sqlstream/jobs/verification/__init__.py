"""Whether what a job wrote is what its query says: compared with a batch over all that it has read, and explained."""

from __future__ import annotations

from sqlstream.jobs.verification.report import Difference, TableReport, Verification
from sqlstream.jobs.verification.verify import verify_job

__all__ = ["Difference", "TableReport", "Verification", "verify_job"]
