"""Sentences about jobs."""

from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from sqlstream.jobs.progress import Progress
from sqlstream.session.job_texts import facts, progress_text


@pytest.mark.parametrize(
    ("watermark", "line", "fact"),
    [
        (None, "j: batch 1, 0 rows in", None),
        (
            datetime(44, 3, 15, 10, 0, 0, 5),
            "j: batch 1, 0 rows in, watermark 0044-03-15 10:00:00",
            "0044-03-15 10:00:00.000005",
        ),
        (datetime.max, "j: batch 1, 0 rows in, watermark end of input", "end of input"),
    ],
)
def test_the_watermark(watermark: datetime | None, line: str, fact: str | None) -> None:
    progress = Progress(batch=1, watermark=watermark)
    job: Any = SimpleNamespace(name="j", status="RUNNING", error=None, progress=progress)
    assert progress_text(job) == line
    assert facts(job)["watermark"] == fact
