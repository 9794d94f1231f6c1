"""Which operators go on: those over rows that are taken back only if what they have counted is what will be taken back."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.jobs.launch import job_record, job_spec
from sqlstream.jobs.upgrades.changes import Change, Comparison, DroppedOperator, KeptOperator, UnadaptableOperator
from sqlstream.jobs.upgrades.comparing import compare
from sqlstream.warehouse.jobs import JobRecord, RowPath
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
    return next(one for one in found if not isinstance(one, DroppedOperator) and one.operator == "counted")


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
    assert isinstance(change, UnadaptableOperator)
    assert reason in change.reason


def test_what_takes_back_the_same_rows_goes_on(tmp_path: Path) -> None:
    same = (NEWEST.replace("v FROM", "v, min(v) AS low FROM"), TOTAL)
    assert isinstance(change_of(tmp_path, (NEWEST, TOTAL), same), KeptOperator)


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
    assert isinstance(change, UnadaptableOperator)
    assert "another order" in change.reason


def test_sides_in_other_places_are_refused(tmp_path: Path) -> None:
    sides = ("SELECT k FROM t", "SELECT k FROM u")
    old, new = (("SELECT 1 AS one FROM t", " EXCEPT ".join(s)) for s in (sides, sides[::-1]))
    change = change_of(tmp_path, old, new)
    assert isinstance(change, UnadaptableOperator)
    assert "another order" in change.reason


PLAIN, SLOW, OLD = "t", "t /*+ OPTIONS('source.max-files-per-batch' = '1') */", "t /*+ OPTIONS('path' = 'old') */"


def compared(folder: Path, before: str, after: str) -> Comparison:
    """Return what becomes of a job of one operator when its query changes."""
    old, new = (planned("SELECT 1 AS one FROM u", sql) for sql in (before, after))
    return compare(record(old, folder), record(new, folder), new.physical.stages)


def union(*branches: str) -> str:
    return f"SELECT k, count(*) AS n FROM ({' UNION ALL '.join(branches)}) GROUP BY k"


@pytest.mark.parametrize("other", [SLOW, OLD, SLOW.replace("files", "bytes").replace("'1'", "'1 MB'")])
def test_a_scan_goes_on_where_the_scan_with_its_options_was(tmp_path: Path, other: str) -> None:
    one, two = f"SELECT k FROM {PLAIN} AS a", f"SELECT k FROM {other} AS b"
    found = compared(tmp_path, union(one, two), union(two, one))
    assert [source.was for source in found.sources] == [1, 0]
    [change] = found.operators
    assert isinstance(change, KeptOperator)


def test_an_option_of_the_table_may_change_for_all_its_scans(tmp_path: Path) -> None:
    one, two = f"SELECT k FROM {PLAIN}", f"SELECT k FROM {SLOW}"
    old, new = planned("SELECT 1 AS one FROM u", union(one, two)), planned("SELECT 1 AS one FROM u", union(two, one))
    after = record(new, tmp_path)
    watched = [replace(s, options={**s.options, "source.monitor-interval": "1 s"}) for s in after.scans]
    found = compare(record(old, tmp_path), replace(after, scans=tuple(watched)), new.physical.stages)
    assert [source.was for source in found.sources] == [1, 0]


@pytest.mark.parametrize("other", [SLOW, OLD])
def test_a_filter_that_moves_to_another_scan_of_the_table_is_told(tmp_path: Path, other: str) -> None:
    before = union(f"SELECT k FROM {PLAIN} WHERE v > 5", f"SELECT k FROM {other}")
    after = union(f"SELECT k FROM {other} WHERE v > 5", f"SELECT k FROM {PLAIN}")
    [change] = compared(tmp_path, before, after).operators
    assert isinstance(change, KeptOperator)
    assert "it reads or filters otherwise from now on" in str(change.notes)
    [same] = compared(tmp_path, before, before).operators
    assert same == KeptOperator("counted", "counted", ())


def test_scans_of_a_table_in_other_places_of_a_join_are_refused(tmp_path: Path) -> None:
    sides = f"(SELECT k, v AS high FROM {PLAIN}) a", f"(SELECT k, v AS low FROM {OLD}) b"
    before, after = (f"SELECT a.k, high, low FROM {one} JOIN {two} ON a.k = b.k" for one, two in (sides, sides[::-1]))
    [change] = compared(tmp_path, before, after).operators
    assert isinstance(change, UnadaptableOperator)
    assert "another order" in change.reason


def test_a_scan_of_a_table_begins_or_ends_beside_another(tmp_path: Path) -> None:
    alone, both = union(f"SELECT k FROM {PLAIN}"), union(f"SELECT k FROM {PLAIN}", f"SELECT k FROM {OLD}")
    found = compared(tmp_path, alone, both)
    [stays, begins] = found.sources
    assert (stays.was, begins.was, found.dropped_sources) == (0, None, ())
    assert "another place" not in str(begins.notes)
    found = compared(tmp_path, both, alone)
    assert ([s.was for s in found.sources], found.dropped_sources) == ([0], ("t as t_2",))
    found = compared(tmp_path, alone, union(f"SELECT k FROM {OLD}"))
    assert "another place than before" in str(found.sources)
    assert found.dropped_sources == ()


def test_a_record_that_does_not_say_which_scan_it_was(tmp_path: Path) -> None:
    """Version 0.1 recorded the name of the table alone."""
    query = union(f"SELECT k FROM {PLAIN} WHERE v > 5", f"SELECT k FROM {OLD}")
    job = planned("SELECT 1 AS one FROM u", query)
    new = record(job, tmp_path)

    def older(path: RowPath) -> RowPath:
        return replace(path, scan="")

    [operator] = new.operators
    assert operator.shape is not None
    shape = replace(operator.shape, paths=tuple(map(older, operator.shape.paths)))
    old = replace(
        new,
        scans=tuple(replace(scan, options={}) for scan in new.scans),
        operators=(replace(operator, shape=shape),),
        sinks=tuple(replace(sink, paths=tuple(map(older, sink.paths))) for sink in new.sinks),
    )
    found = compare(old, new, job.physical.stages)
    assert found.operators == (KeptOperator("counted", "counted", ()),)
    assert [source.was for source in found.sources] == [0, 1]
    assert not any(sink.notes for sink in found.sinks)


def test_rows_of_a_table_that_another_scan_writes_are_told(tmp_path: Path) -> None:
    script = "CREATE TABLE out (k STRING);" + SCRIPT.partition("WITH newest")[0]
    branches = f"SELECT k FROM {PLAIN}", f"SELECT upper(k) AS k FROM {OLD}"
    swapped = f"SELECT k FROM {OLD}", f"SELECT upper(k) AS k FROM {PLAIN}"
    jobs = [last_job(f"{script} INSERT INTO out {' UNION ALL '.join(b)}") for b in (branches, swapped)]
    found = compare(record(jobs[0], tmp_path), record(jobs[1], tmp_path), ())
    assert "its rows are made otherwise from now on" in str(found.sinks)


def test_the_current_rows_of_a_table_do_not_go_on_with_those_of_another_place(tmp_path: Path) -> None:
    table = "CREATE TABLE r (k STRING, v BIGINT, PRIMARY KEY (k) NOT ENFORCED)"
    script = f"{table} WITH ('connector' = 'filesystem', 'path' = 'rates', 'format' = 'debezium-json');"
    branches = "SELECT k, v FROM r", "SELECT k, v FROM r /*+ OPTIONS('path' = 'old') */"
    one, two = (last_job(f"{script} {' UNION ALL '.join(b)}") for b in (branches, branches[::-1]))
    old, new = record(one, tmp_path), record(two, tmp_path)
    assert [o.name for o in old.operators] == [o.name for o in new.operators] == ["r_current", "r_current_2"]
    for change in compare(old, new, two.physical.stages).operators:
        assert isinstance(change, UnadaptableOperator)
        assert "it reads or filters otherwise" in change.reason
    assert all(
        isinstance(change, KeptOperator)
        for change in compare(old, record(one, tmp_path), one.physical.stages).operators
    )
