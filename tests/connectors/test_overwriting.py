"""INSERT OVERWRITE into files: the new rows take the place of the old ones at the end of the job, all or none."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sqlstream import Session
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.connectors.filesystem.overwriting import OverwritingCommitter
from sqlstream.errors import SourceText
from sqlstream.local.engine import LocalEngine
from sqlstream.warehouse.filesystem import LocalFilesystem
from tests.processes import SECONDS

TABLES = """
CREATE TABLE given (k INT, day STRING) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json',
  'source.max-files-per-batch' = '1');
CREATE TABLE files (k INT) WITH ('connector' = 'filesystem', 'path' = 'files', 'format' = 'json');
CREATE TABLE days (k INT, day STRING) PARTITIONED BY (day)
WITH ('connector' = 'filesystem', 'path' = 'days', 'format' = 'json');
"""
ALL = "INSERT OVERWRITE files SELECT k FROM given"


def put(file: Path, *rows: dict[str, Any]) -> None:
    """Write rows into a file of JSON."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def visible(folder: Path) -> list[tuple[str, int]]:
    """Return the rows that a reader of the table sees: (partition, k)."""
    files = [f for f in folder.rglob("*.json") if not any(part.startswith(".") for part in f.relative_to(folder).parts)]
    rows = [(f.parent.name if f.parent != folder else "", json.loads(line)["k"]) for f in files for line in f.open()]
    return sorted(rows)


def hidden(folder: Path) -> list[Path]:
    """Return what a table's folder has beside its rows."""
    return [path for path in folder.iterdir() if path.name.startswith(".")]


def run(project: Path, insert: str, *, fresh: bool = False) -> None:
    """Run a job to its end, or to the error that ends it, which is raised."""
    with Session(str(project), notice=lambda text: None) as session:
        compiled = session.compile(SourceText("script", TABLES + insert))
        [planned] = [one for one in compiled if isinstance(one, PlannedJob)]
        job = session._jobs.start(planned, {}, engine=LocalEngine(), fresh=fresh)
        assert job.wait(SECONDS)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with an input of two batches, and tables that have files of others."""
    put(tmp_path / "in/1.json", {"k": 1, "day": "a"}, {"k": 2, "day": "b"})
    put(tmp_path / "in/2.json", {"k": 3, "day": "a"})
    put(tmp_path / "files/old.json", {"k": 100})
    put(tmp_path / "files/below/old.json", {"k": 101})
    for day in ("a", "b", "c"):
        put(tmp_path / f"days/day={day}/old.json", {"k": 100})
    return tmp_path


def test_the_rows_of_the_job_replace_those_of_the_table(project: Path) -> None:
    run(project, ALL)
    assert visible(project / "files") == [("", 1), ("", 2), ("", 3)]
    assert hidden(project / "files") == []
    # It has ended: a second run does nothing, with --fresh it overwrites again.
    put(project / "files/more.json", {"k": 5})
    run(project, ALL)
    assert visible(project / "files") == [("", 1), ("", 2), ("", 3), ("", 5)]
    run(project, ALL, fresh=True)
    assert visible(project / "files") == [("", 1), ("", 2), ("", 3)]


def test_only_partitions_with_rows_are_replaced(project: Path) -> None:
    run(project, "INSERT OVERWRITE days SELECT k, day FROM given")
    assert visible(project / "days") == [("day=a", 1), ("day=a", 3), ("day=b", 2), ("day=c", 100)]


def test_the_partition_that_is_named_is_replaced_also_by_nothing(project: Path) -> None:
    run(project, "INSERT OVERWRITE days PARTITION (day = 'c') SELECT k FROM given WHERE k > 1")
    assert visible(project / "days") == [("day=a", 100), ("day=b", 100), ("day=c", 2), ("day=c", 3)]
    run(
        project,
        "SET 'pipeline.name' = 'x'; INSERT OVERWRITE days PARTITION (day = 'c') SELECT k FROM given WHERE k > 9",
    )
    assert visible(project / "days") == [("day=a", 100), ("day=b", 100)]


def test_a_partition_is_a_constant_column(project: Path) -> None:
    run(project, "INSERT INTO days PARTITION (day = 'd') SELECT k FROM given WHERE k > 1")
    run(
        project,
        "SET 'pipeline.name' = 'x'; INSERT INTO days PARTITION (day = 1 + 1) (k) SELECT k FROM given WHERE k = 1",
    )
    written = [("day=2", 1), ("day=d", 2), ("day=d", 3)]
    assert visible(project / "days") == sorted([*written, *((f"day={day}", 100) for day in "abc")])


def test_a_job_that_fails_has_changed_nothing(project: Path) -> None:
    put(project / "in/2.json", {"k": "no number"})
    with pytest.raises(Exception, match="no number"):
        run(project, ALL)
    assert visible(project / "files") == [("", 100), ("below", 101)]
    put(project / "in/2.json", {"k": 3})
    run(project, ALL)
    assert visible(project / "files") == [("", 1), ("", 2), ("", 3)]


Step = tuple[type, str, int]


@pytest.mark.parametrize(
    "step",
    [
        (OverwritingCommitter, "ended", 1),
        (OverwritingCommitter, "_exchange", 1),
        *((LocalFilesystem, "move", number) for number in (3, 4)),
        (LocalFilesystem, "delete_all", 1),
    ],
)
def test_an_exchange_that_dies_is_finished_by_the_next_run(
    project: Path, monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    owner, name, number = step
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dying(getattr(owner, name), number))
        with pytest.raises(Exception, match="killed"):
            run(project, ALL)
    assert {("", 100), ("below", 101)} <= {*visible(project / "files")}
    run(project, ALL)
    assert visible(project / "files") == [("", 1), ("", 2), ("", 3)]
    assert hidden(project / "files") == []


def dying(method: Callable[..., Any], number: int) -> Callable[..., Any]:
    """Return a method whose call of a number fails, and all after it, when it is about files of the table."""
    calls = list[Sequence[Any]]()

    def call(*arguments: Any) -> Any:
        if len(arguments) > 1 and not isinstance(arguments[1], str):
            paths = list(arguments[1])
            arguments = (arguments[0], paths)
            if not any("old.json" in path for path in paths):
                return method(*arguments)
        calls.append(arguments)
        if len(calls) >= number:
            raise OSError("killed")
        return method(*arguments)

    return call
