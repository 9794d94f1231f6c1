"""What earlier versions have written of every kind of stateful operator: it is queried, continued, upgraded and restored.

Each archive in `kinds` has the project of `kinds.sql` as one version left it (see `make_kinds.py`).
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import get_args

import pytest

from sqlstream import Session
from sqlstream.compiler import planned_job
from sqlstream.errors import UsageError
from sqlstream.jobs.identity import as_recorded, is_planned, planned_digests
from sqlstream.jobs.savepoints.named_savepoints import take_savepoint
from sqlstream.jobs.savepoints.restore_plans import Restore
from sqlstream.jobs.upgrades.older_settings import settings_of
from sqlstream.jobs.upgrades.shapes import shape_kind, shapes
from sqlstream.jobs.upgrades.upgrading import Upgrade
from sqlstream.local.engine import LocalEngine
from sqlstream.logical.plan.explain import logical_text
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import AnyNode, Stateful
from sqlstream.session import explaining
from sqlstream.warehouse.jobs import JobRecord, read_record
from tests.formats.make_kinds import FUNCTION, SCRIPT, put, rows_of
from tests.jobs.savepoint_jobs import open_session, planned
from tests.processes import SECONDS, wait_until
from tests.rewriting import rewritten

pytestmark = pytest.mark.slow

JOB = "kinds"
ARCHIVES = sorted(path for path in (Path(__file__).parent / "kinds").glob("*.zip"))
TABLES = re.findall(r"INSERT INTO (\w+)", SCRIPT.read_text())
Results = dict[str, list[tuple[object, ...]]]


def more(script: str) -> str:
    """Return the script with one more result; the operators are the same."""
    insert = "INSERT INTO large SELECT customer, amount FROM orders WHERE amount >= 5;\nEND;"
    return "CREATE TABLE large (customer BIGINT, amount BIGINT);\n" + script.replace("END;", insert)


def results(session: Session) -> Results:
    return {table: sorted(session.query(f"FROM {table}").fetchall(), key=repr) for table in TABLES}


def run(
    folder: Path, script: str, files: tuple[str, ...], *, restore: Restore | None = None, upgrade: Upgrade | None = None
) -> Results:
    """Run the job in this process until it has read some files of each table, in all since it began."""
    with open_session(folder) as session:
        job = session._jobs.start(planned(session, script), {}, engine=LocalEngine(), restore=restore, upgrade=upgrade)
        ties = record_of(folder).ties
        wait_until(lambda: job.progress.rows_in >= rows_of(*files, ties=ties) or job.wait(0))
        job.stop()
        assert job.wait(SECONDS)
        assert job.error is None
        return results(session)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], Results]:
    """What the code of today makes of the same rows from the beginning, which the golden scripts compare with DuckDB."""
    found: dict[tuple[str, ...], Results] = {}
    for files in (("a", "b"), ("a", "b", "c")):
        folder = tmp_path_factory.mktemp("anew")
        (folder / "udfs").mkdir()
        (folder / "udfs" / "totals.py").write_text(FUNCTION)
        for name in files:
            put(folder, name)
        found[files] = run(folder, SCRIPT.read_text(), files)
    return found


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.stem)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with zipfile.ZipFile(request.param) as file:
        file.extractall(tmp_path)
    return tmp_path


def test_an_archive_has_every_kind_of_stateful_operator(project: Path) -> None:
    with open_session(project) as session:
        record = read_record(session.warehouse.fs, session.warehouse.job(JOB))
        assert record is not None
        recorded = [operator.shape for operator in record.operators]
        assert {shape.operator for shape in recorded if shape} == set(map(shape_kind, get_args(Stateful)))
        held = dict(
            session.query("SELECT operator, state_rows FROM sqlstream.operators WHERE job = 'kinds'").fetchall()
        )
        # Of the windows of rows the aggregate keeps nothing, nor need rows wait to be sorted.
        assert {operator for operator, rows in held.items() if not rows} <= {"by_count", "sort_1"}


def test_its_settings_are_those_of_today(project: Path) -> None:
    """An earlier version wrote them as texts."""
    with open_session(project) as session:
        plan = as_recorded(planned(session, SCRIPT.read_text()), record_of(project)).physical
    today = {stage.name: shape.settings for stage, shape in zip(plan.stages, shapes(plan), strict=True)}
    shapes_before = {operator.name: operator.shape for operator in record_of(project).operators}
    assert {name: shape and settings_of(shape) for name, shape in shapes_before.items()} == today


@pytest.mark.one_in(2)
def test_its_results_and_state_can_be_queried(project: Path, expected: dict[tuple[str, ...], Results]) -> None:
    with open_session(project) as session:
        found, now = results(session), expected["a", "b"]
        # It let a row leave when the watermark was at its time; today it must be beyond.
        assert set(found.pop("temporal_join")) >= set(now["temporal_join"])
        assert found == {table: rows for table, rows in now.items() if table != "temporal_join"}
        for (operator,) in session.query("SELECT operator FROM sqlstream.operators").fetchall():
            session.query(f"FROM state.{JOB}.{operator}").fetchall()
        assert [checkup.damaged for checkup in session.check()] == [()]


@pytest.mark.one_in(2)
def test_the_job_continues(project: Path, expected: dict[tuple[str, ...], Results]) -> None:
    put(project, "c")
    assert run(project, SCRIPT.read_text(), ("a", "b", "c")) == expected["a", "b", "c"]


@pytest.mark.one_in(2)
def test_the_job_continues_with_a_changed_query(project: Path, expected: dict[tuple[str, ...], Results]) -> None:
    put(project, "c")
    upgraded = run(project, more(SCRIPT.read_text()), ("a", "b", "c"), upgrade=Upgrade())
    assert upgraded == expected["a", "b", "c"]


@pytest.mark.one_in(2)
def test_the_job_is_restored_from_its_savepoint(project: Path, expected: dict[tuple[str, ...], Results]) -> None:
    with open_session(project) as session:
        session.drop(JOB)
    put(project, "c")
    restored = run(project, SCRIPT.read_text(), ("a", "b", "c"), restore=Restore("kinds_1"))
    assert restored == expected["a", "b", "c"]


@contextmanager
def reworded() -> Iterator[None]:
    """Every line of a plan is other words."""

    def other_words(node: Node) -> str:
        return "\n".join(f"(reworded) {line.swapcase()}" for line in logical_text(node).splitlines())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planned_job, "logical_text", other_words)
        patch.setattr(explaining, "logical_text", other_words)
        yield


@contextmanager
def renamed() -> Iterator[None]:
    """The classes of nodes have other names."""
    names = {kind: kind.__name__ for kind in get_args(AnyNode)}
    try:
        for number, kind in enumerate(names):
            kind.__name__ = f"Renamed{number}"
        yield
    finally:
        for kind, name in names.items():
            kind.__name__ = name


# What may change in the code without a job becoming another one.
CHANGES = {"other words": reworded, "other names": renamed, "another rule": rewritten}
# Changes of the query, each with words that show it.
REAL = (
    ("INTERVAL '10' SECOND) GROUP BY", "INTERVAL '20' SECOND) GROUP BY", "size 20"),
    ("SELECT customer, amount FROM top", "SELECT amount AS customer, amount FROM top", '"amount" AS customer'),
    ("SET 'sqlstream.unbounded", "SET 'table.exec.state.ttl' = '1 h';\nSET 'sqlstream.unbounded", "that expires"),
    ("'path' = 'in/rates'", "'path' = 'in/other'", "path=in/other"),
)


def record_of(folder: Path) -> JobRecord:
    with open_session(folder) as session:
        record = read_record(session.warehouse.fs, session.warehouse.job(JOB))
        assert record is not None
        return record


@pytest.fixture
def known(project: Path) -> Path:
    """The project with a job that is known by its digests, and a savepoint of it."""
    run(project, SCRIPT.read_text(), ("a", "b"))
    assert record_of(project).digests is not None
    with open_session(project) as session:
        take_savepoint(session.warehouse, JOB, "known")
    return project


def test_it_is_known_by_the_digests_of_its_record_if_there_are_any(project: Path) -> None:
    record = record_of(project)
    with open_session(project) as session:
        job = planned(session, SCRIPT.read_text())
    assert is_planned(record, job)
    digests = planned_digests(as_recorded(job, record))
    # Those of another release of sqlglot may be other ones.
    if record.digests is not None and record.digests.printer == digests.printer:
        assert record.digests == digests


@pytest.mark.one_in(6, of="kinds in other words")
@pytest.mark.parametrize("change", CHANGES)
def test_the_job_continues_whatever_words_describe_it(
    known: Path, expected: dict[tuple[str, ...], Results], change: str
) -> None:
    before = record_of(known)
    put(known, "c")
    with CHANGES[change]():
        assert run(known, SCRIPT.read_text(), ("a", "b", "c")) == expected["a", "b", "c"]
    after = record_of(known)
    assert after.digests == before.digests
    assert (after.plan_text == before.plan_text) == (change == "other names")


@pytest.mark.one_in(6, of="kinds in other words")
@pytest.mark.parametrize("change", CHANGES)
def test_the_job_is_upgraded_whatever_words_describe_it(
    known: Path, expected: dict[tuple[str, ...], Results], change: str
) -> None:
    put(known, "c")
    with CHANGES[change]():
        assert run(known, more(SCRIPT.read_text()), ("a", "b", "c"), upgrade=Upgrade()) == expected["a", "b", "c"]


@pytest.mark.one_in(6, of="kinds in other words")
@pytest.mark.parametrize("change", CHANGES)
def test_there_is_nothing_to_upgrade_where_only_words_changed(
    known: Path, expected: dict[tuple[str, ...], Results], change: str
) -> None:
    # An upgrade changes what decides ties in it, once.
    run(known, SCRIPT.read_text(), ("a", "b"), upgrade=Upgrade())
    before = record_of(known)
    assert before.ties == "arrival"
    put(known, "c")
    with CHANGES[change]():
        with open_session(known) as session:
            assert not Upgrade().may_change(before, planned(session, SCRIPT.read_text()))
        assert run(known, SCRIPT.read_text(), ("a", "b", "c"), upgrade=Upgrade()) == expected["a", "b", "c"]
    assert record_of(known).upgraded_from == before.upgraded_from


@pytest.mark.one_in(6, of="kinds in other words")
@pytest.mark.parametrize("change", CHANGES)
def test_the_job_is_restored_whatever_words_describe_it(
    known: Path, expected: dict[tuple[str, ...], Results], change: str
) -> None:
    put(known, "c")
    with open_session(known) as session:
        session.drop(JOB)
    with CHANGES[change]():
        restored = run(known, SCRIPT.read_text(), ("a", "b", "c"), restore=Restore("known"))
    assert restored == expected["a", "b", "c"]


@pytest.mark.one_in(2)
def test_a_changed_query_is_another_one_in_other_words_too(known: Path) -> None:
    script = SCRIPT.read_text()
    for describing in (nullcontext, reworded):
        with describing():
            # As it continues its record gets today's words.
            run(known, script, ("a", "b"))
            for before, after, words in REAL:
                assert before in script
                with pytest.raises(UsageError, match="exists with another query") as refused:
                    run(known, script.replace(before, after), ("a", "b"))
                assert words.lower() in str(refused.value.detail).lower()
