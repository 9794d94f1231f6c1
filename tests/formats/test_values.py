"""Jobs whose expressions have had DuckDB's values go on with them, and an upgrade gives them Flink's where their state allows it.

Each archive in `values` has the project of `values.sql` as a version before Flink's values left it (see `make_values.py`), and
what that version made of the rows.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sqlstream.jobs.identity import is_planned, planned_digests
from sqlstream.jobs.upgrades.upgrading import Upgrade
from sqlstream.session.explaining import as_it_goes_on, explained
from sqlstream.session.upgrades import compared_with
from tests.formats.archived import expected, planned, records, semantics_and_ties, unpacked
from tests.formats.make_values import FILES, JOBS, SCRIPT, put, results, run
from tests.jobs.savepoint_jobs import open_session

pytestmark = pytest.mark.slow

ARCHIVES = sorted(path for path in (Path(__file__).parent / "values").glob("*.zip"))


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.stem)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpacked(request.param, tmp_path)


def semantics(project: Path) -> dict[str, str]:
    return {job: semantics for job, (semantics, _) in semantics_and_ties(project).items()}


def test_its_results_are_those_of_the_version_that_wrote_it(project: Path) -> None:
    with open_session(project) as session:
        assert results(session) == expected(project, "ab")
    assert semantics(project) == dict.fromkeys(JOBS, "duckdb")


def test_the_jobs_are_known_and_planned_with_duckdbs_values(project: Path) -> None:
    with open_session(project) as session:
        for name, job in planned(session, SCRIPT.read_text()).items():
            record = records(project, JOBS)[name]
            assert is_planned(record, job)
            assert (job.semantics, job.has_semantics) == ("flink", True)
            assert planned_digests(job.under(record.ties, record.semantics)) == record.digests
            assert planned_digests(job) != record.digests
            line = "expressions have DuckDB's values"
            assert line in explained(as_it_goes_on(job, session.warehouse), "plan")
            assert line not in explained(job, "plan")


def test_the_jobs_go_on_with_duckdbs_values(project: Path) -> None:
    before = records(project, JOBS)
    put(project, "c")
    assert run(project, [*FILES]) == expected(project, "abc")
    assert {job: record.digests for job, record in records(project, JOBS).items()} == {
        j: r.digests for j, r in before.items()
    }
    assert semantics(project) == dict.fromkeys(JOBS, "duckdb")
    with open_session(project) as session:
        for name, job in planned(session, SCRIPT.read_text()).items():
            session.verify(name, compiled=[job])


def test_the_jobs_are_restored_with_duckdbs_values(project: Path) -> None:
    with open_session(project) as session:
        for job in JOBS:
            session.drop(job)
    put(project, "c")
    assert run(project, [*FILES], restores=True) == expected(project, "abc")
    assert semantics(project) == dict.fromkeys(JOBS, "duckdb")


def test_new_jobs_have_flinks_values(tmp_path: Path) -> None:
    for name in FILES:
        put(tmp_path, name)
    answers = run(tmp_path, [*FILES])
    assert semantics(tmp_path) == dict.fromkeys(JOBS, "flink")
    assert answers["buckets"] == ["(0, 2)", "(1, 3)", "(2, 2)"]
    assert "(15, '2026-01-01 00:00:04.000', 'TRUE', 'Hel', 9, 1.0)" in answers["texts"]
    assert answers["averages"] == ["(1, 4.246667, 22.0)", "(2, 3.105, 18.0)", "(3, 1.505, 14.0)"]


def test_an_upgrade_gives_flinks_values_where_the_state_allows_it(project: Path) -> None:
    with open_session(project) as session:
        texts = {job: compared_with(session, [*planned(session, SCRIPT.read_text()).values()], job) for job in JOBS}
    # What is emitted without state changes from then on.
    assert re.search(r"^values +Flink's from batch \d+ on, and were DuckDB's$", texts["texts"], re.MULTILINE)
    # The keys of the state are others.
    assert re.search(r"^values +DuckDB's, as before$", texts["buckets"], re.MULTILINE)
    notices: list[str] = []
    put(project, "c")
    answers = run(project, [*FILES], upgrade=Upgrade(), notices=notices)
    now = semantics(project)
    assert (now["texts"], now["buckets"]) == ("flink", "duckdb")
    assert answers["buckets"] == expected(project, "abc")["buckets"]
    before = expected(project, "ab")["texts"]
    assert set(before) < set(answers["texts"])
    assert set(answers["texts"]) - set(before) == {
        "(19, '2026-01-01 00:00:06.000', 'TRUE', 'Hel', 3, 1.0)",
        "(26, '2026-01-01 00:00:07.125', 'TRUE', 'Hel', 2, 2.0)",
    }
    assert any("""job "texts" goes on with Flink's values of expressions""" in notice for notice in notices)
    assert any("""job "buckets": expressions go on to have DuckDB's values""" in notice for notice in notices)
    # There is nothing more to upgrade, and the jobs go on.
    assert run(project, [*FILES], upgrade=Upgrade()) == answers
