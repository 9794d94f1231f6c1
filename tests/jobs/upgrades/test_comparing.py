"""Which operators go on: those over rows that are taken back only if what they have counted is what will be taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.jobs.launch import job_record, job_spec
from sqlstream.jobs.upgrades.changes import Change, Dropped, Kept, NotAdaptable
from sqlstream.jobs.upgrades.comparing import compare
from sqlstream.warehouse.jobs import JobRecord
from tests.kinds import last_job

SCRIPT = """
CREATE TABLE t (k STRING, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
CREATE TABLE u (k STRING, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'other', 'format' = 'json');
WITH newest AS ({}), counted AS ({}) FROM counted;
"""
NEWEST = "SELECT k, max(v) AS v FROM t GROUP BY k"
TOTAL = "SELECT count(*) AS n, sum(v) AS s FROM newest"


def planned(below: str, above: str) -> PlannedJob:
    return last_job(SCRIPT.format(below, above))


def record(job: PlannedJob, folder: Path) -> JobRecord:
    return job_record(job, job_spec(job, str(folder), (0, 1), name="j", project=str(folder)), 2)


def change_of(folder: Path, before: tuple[str, str], after: tuple[str, str]) -> Change:
    """Return what becomes of the second operator."""
    old, new = planned(*before), planned(*after)
    found = compare(record(old, folder), record(new, folder), new.physical.stages).operators
    return next(one for one in found if not isinstance(one, Dropped) and one.operator == "counted")


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        # Each key would come once more, from an operator without state.
        (
            (NEWEST, "SELECT count(*) AS n FROM newest"),
            (
                "SELECT k FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY ts) AS r FROM t) WHERE r = 1",
                "SELECT count(*) AS n FROM newest",
            ),
            "newest begins anew",
        ),
        # Twice of what was added would be taken away.
        (
            (NEWEST, "SELECT sum(v) AS s FROM (SELECT v FROM newest)"),
            (NEWEST, "SELECT sum(v) AS s FROM (SELECT v * 2 AS v FROM newest)"),
            "columns are made otherwise",
        ),
        ((NEWEST, TOTAL), (NEWEST.replace("max(v)", "max(v + 1)"), TOTAL), "columns are made otherwise"),
    ],
)
def test_what_would_take_back_other_rows_is_refused(
    tmp_path: Path, before: tuple[str, str], after: tuple[str, str], reason: str
) -> None:
    change = change_of(tmp_path, before, after)
    assert isinstance(change, NotAdaptable)
    assert reason in change.reason


def test_what_takes_back_the_same_rows_goes_on(tmp_path: Path) -> None:
    same = (NEWEST.replace("v FROM", "v, min(v) AS low FROM"), TOTAL)
    assert isinstance(change_of(tmp_path, (NEWEST, TOTAL), same), Kept)


HIGH, LOW = "SELECT k, v AS high FROM t WHERE v > 5", "SELECT k, v AS low FROM u"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"FROM ({HIGH}) a JOIN ({LOW}) b ON a.k = b.k", f"FROM ({LOW}) b JOIN ({HIGH}) a ON a.k = b.k"),
        # Also where one of them is filtered otherwise, and where only filters tell them apart.
        (f"FROM ({HIGH}) a JOIN ({LOW}) b ON a.k = b.k", f"FROM ({LOW} WHERE v < 3) b JOIN ({HIGH}) a ON a.k = b.k"),
        (
            f"FROM ({HIGH}) a JOIN (SELECT k, v AS low FROM t WHERE v < 3) b ON a.k = b.k",
            f"FROM (SELECT k, v AS low FROM t WHERE v < 3) b JOIN ({HIGH}) a ON a.k = b.k",
        ),
    ],
)
def test_inputs_in_other_places_are_refused(tmp_path: Path, before: str, after: str) -> None:
    old, new = (("SELECT 1 AS one FROM t", f"SELECT a.k, high, low {joined}") for joined in (before, after))
    change = change_of(tmp_path, old, new)
    assert isinstance(change, NotAdaptable)
    assert "another order" in change.reason


def test_sides_in_other_places_are_refused(tmp_path: Path) -> None:
    sides = ("SELECT k FROM t", "SELECT k FROM u")
    old, new = (("SELECT 1 AS one FROM t", " EXCEPT ".join(s)) for s in (sides, sides[::-1]))
    change = change_of(tmp_path, old, new)
    assert isinstance(change, NotAdaptable)
    assert "another order" in change.reason
