"""Every kind of file of a job, damaged in every way: the right rows, or an error that names it; and the job goes on."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from msgspec import structs

from sqlstream.cli.check import Outcome, checked
from sqlstream.errors import DamageError, JobError, QueryError
from sqlstream.jobs.file_checks import check_job, repair_job
from sqlstream.jobs.savepoints.savepoint_folders import take
from sqlstream.local.stepped import SteppedRun
from sqlstream.queries.query import open_query
from sqlstream.runtime.worker import JobSpec
from sqlstream.session.session import Session
from sqlstream.storage.begun import BegunBatch, read_begun, write_begun
from sqlstream.storage.manifests import manifest_name, read_manifest
from sqlstream.storage.recovery import Versions
from sqlstream.storage.segments import forget_known
from sqlstream.testing import Stream
from sqlstream.units import EPOCH, from_millis
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import write_sealed
from sqlstream.warehouse.status import STOPPED, Status, write_status

SCRIPT = """
CREATE TABLE t (k INT, x INT);
CREATE TABLE totals (k INT, n BIGINT, total BIGINT, PRIMARY KEY (k) NOT ENFORCED);
INSERT INTO totals SELECT k, COUNT(*) AS n, SUM(x) AS total FROM t GROUP BY k;
"""
NEWEST = 5
TIME = from_millis(1_700_000_000_000)
ROWS = "SELECT * FROM totals ORDER BY k"
STATE = "SELECT * FROM state.totals.aggregate_1 ORDER BY k"
# The files of the newest version by what they are, and one that only an older version needs.
KINDS = {
    "record": "jobs/totals/job.json",
    "status": "jobs/totals/status.json",
    "log": f"jobs/totals/log/{NEWEST:010d}.json",
    "older log": "jobs/totals/log/0000000002.json",
    "commit": f"jobs/totals/checkpoint/commits/{NEWEST}",
    "state manifest": f"jobs/totals/state/*/manifests/0/{NEWEST:010d}-*.json",
    "state segment": f"jobs/totals/state/*/data/0/*-{NEWEST}-*.parquet",
    "result manifest": f"tables/totals/totals/manifests/0/{NEWEST:010d}-*.json",
    "result segment": f"tables/totals/totals/data/0/*-{NEWEST}-*.parquet",
}
WAYS = ("emptied", "cut", "zeros", "flipped", "missing")
# For the tests of many kinds of files in as many ways: `make quick` tries one way with each, `make test` three.
MARKS = {
    "flipped": pytest.mark.slow,
    "missing": pytest.mark.slow,
    "emptied": pytest.mark.thorough,
    "zeros": pytest.mark.thorough,
}
MOST_WAYS = [pytest.param(way, marks=MARKS.get(way, ())) for way in WAYS]


def rows_of(batch: int) -> list[tuple[int, int]]:
    return [(k, batch * 10 + k) for k in range(8)]


@dataclass
class Made:
    """A job that was stopped after version NEWEST, and the rows of its table at each version."""

    stream: Stream
    job: JobSpec
    rows: list[list[tuple[object, ...]]]


@pytest.fixture(scope="module")
def made() -> Iterator[Made]:
    with Stream(SCRIPT) as stream:
        rows = []
        for batch in range(NEWEST + 1):
            stream.batch("t", rows_of(batch))
            rows.append(stream.query(ROWS))
        job = stream.runs["totals"].job
        warehouse = Warehouse(stream.warehouse)
        write_status(warehouse.fs, warehouse.job("totals"), Status(STOPPED, 1, "here", EPOCH, EPOCH, None, NEWEST))
        yield Made(stream, job, rows)


@pytest.fixture
def copy(made: Made, tmp_path: Path) -> Warehouse:
    shutil.copytree(made.stream.warehouse, tmp_path / "w")
    forget_known()
    return Warehouse(str(tmp_path / "w"))


def the_file(warehouse: Warehouse, kind: str) -> Path:
    return min(Path(warehouse.root).glob(KINDS[kind]))


def hurt(path: Path, way: str) -> None:
    data = bytearray(path.read_bytes())
    match way:
        case "emptied":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "zeros":
            path.write_bytes(bytes(len(data)))
        case "flipped":
            data[len(data) // 2] ^= 4
            path.write_bytes(data)
        case "missing":
            path.unlink()


def kill(warehouse: Warehouse) -> None:
    """Make it look as if the process had been killed just before it committed the newest version."""
    job = warehouse.job("totals")
    os.unlink(f"{job.commits}/{NEWEST}")
    write_status(warehouse.fs, job, Status("RUNNING", 1, "here", EPOCH, EPOCH))


def ask(warehouse: Warehouse, sql: str) -> list[tuple[object, ...]] | str:
    """Return the rows of a query, or the error."""
    forget_known()
    try:
        return open_query(warehouse, sql).fetchall()
    except (DamageError, QueryError) as error:
        return error.render()


def goes_on(made: Made, warehouse: Warehouse) -> list[tuple[object, ...]] | str:
    """Run the batches that the job has not committed, and return the rows of its table."""
    forget_known()
    run = SteppedRun(replace(made.job, warehouse=warehouse.root), {}, lambda: EPOCH)
    while run.batches.number <= NEWEST:
        split = made.stream._write("t", rows_of(run.batches.number))
        run.batch({0: [split]})
    return ask(warehouse, ROWS)


def harmless(kind: str, way: str) -> bool:
    # What a job says of itself is for people; one that never did is none.
    return kind == "status" and way == "missing"


@pytest.mark.parametrize("way", MOST_WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_job(made: Made, copy: Warehouse, kind: str, way: str) -> None:
    path = the_file(copy, kind)
    hurt(path, way)
    for sql, expected in ((ROWS, made.rows[NEWEST]), (STATE, None)):
        answer = ask(copy, sql)
        assert str(path) in answer if isinstance(answer, str) else expected is None or answer == expected
    found = check_job(copy, "totals")
    assert harmless(kind, way) or str(path) in [error.path for error in found.damaged]
    if kind == "record":
        assert str(path) in ask(copy, ROWS)
        with pytest.raises(JobError, match=r"cannot be repaired: no version of it is intact\nfile .*job.json"):
            repair_job(copy, "totals")
        return
    assert found.whole == (NEWEST if kind in ("status", "older log") else NEWEST - 1)
    done = repair_job(copy, "totals")
    assert bool(done) != harmless(kind, way)
    assert check_job(copy, "totals").damaged == ()
    assert goes_on(made, copy) == made.rows[NEWEST]
    assert check_job(copy, "totals").damaged == ()


@pytest.mark.parametrize("way", MOST_WAYS)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("record", "commit")])
def test_a_killed_job(made: Made, copy: Warehouse, kind: str, way: str) -> None:
    """What its last batch wrote does not count yet: it is written again."""
    kill(copy)
    path = the_file(copy, kind)
    hurt(path, way)
    assert ask(copy, ROWS) == made.rows[NEWEST - 1]
    assert check_job(copy, "totals").whole == NEWEST - 1
    assert Versions(copy, "totals").settle() == []
    assert goes_on(made, copy) == made.rows[NEWEST]


@pytest.mark.parametrize("way", MOST_WAYS)
@pytest.mark.parametrize(
    "kind", ["log", "commit", "state manifest", "state segment", "result manifest", "result segment"]
)
def test_a_job_goes_on_by_itself_after_a_power_cut(made: Made, copy: Warehouse, kind: str, way: str) -> None:
    """Only what a power cut does to files: a job that finds another kind of damage says so."""
    path = the_file(copy, kind)
    hurt(path, way)
    if way == "flipped":
        with pytest.raises(DamageError, match=path.name):
            Versions(copy, "totals").settle()
        return
    faults = Versions(copy, "totals").settle()
    assert [error.path for error in faults] == [str(path)]
    assert goes_on(made, copy) == made.rows[NEWEST]


def on_spark(warehouse: Warehouse) -> Path:
    """Add what a job on Spark has besides: descriptors, and what one more batch has begun to read."""
    job = warehouse.job("totals")
    for n in range(NEWEST + 2):
        write_sealed(
            warehouse.fs,
            f"{job.root}/splits/next/{n:010d}.json",
            json.dumps({"slot": 0, "sequence": n, "path": "x" * 99}),
        )
    write_begun(warehouse.fs, job, BegunBatch(NEWEST + 1, NEWEST + 1, TIME))
    return Path(job.root)


def of_an_older_version(warehouse: Warehouse) -> Path:
    """Make it what earlier versions left: Spark's checkpoint, with Hadoop's checksums."""
    job = on_spark(warehouse)
    (job / "begun.json").unlink()
    checkpoint = job / "checkpoint"
    for n in range(NEWEST + 2):
        write(checkpoint / f"offsets/{n}", f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":7,"conf":{{}}}}\n{n}\n{n}')
        write(checkpoint / f"offsets/.{n}.crc", "crc")
        write(checkpoint / f"commits/.{n}.crc", "crc")
    write(checkpoint / "metadata", '{"id":"0"}')
    write(checkpoint / ".metadata.crc", "crc")
    write(checkpoint / "state/0/_metadata/v2/0", "v2\n{}")
    return job


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def listed(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.iterdir() if path.name[0] != ".")


def begun_after(warehouse: Warehouse, version: int) -> BegunBatch | None:
    return read_begun(warehouse.fs, warehouse.job("totals"), version + 1)


@pytest.mark.parametrize("way", WAYS)
def test_a_descriptor_that_no_version_has_read(copy: Warehouse, way: str) -> None:
    """Its batch has begun, and is begun anew: the input is found again."""
    job = on_spark(copy)
    hurt(job / f"splits/next/{NEWEST + 1:010d}.json", way)
    assert way == "missing" or len(check_job(copy, "totals").damaged) == 1
    assert Versions(copy, "totals").settle() == []
    assert listed(job / "splits/next") == list(range(NEWEST + 1))
    assert begun_after(copy, NEWEST) is None


@pytest.mark.parametrize("way", WAYS)
def test_a_descriptor_of_a_batch_that_was_done_but_not_committed(copy: Warehouse, way: str) -> None:
    """The log has the batch, but it does not read what it read then."""
    kill(copy)
    job = on_spark(copy)
    (job / f"splits/next/{NEWEST + 1:010d}.json").unlink()
    write_begun(copy.fs, copy.job("totals"), BegunBatch(NEWEST, NEWEST, TIME))
    hurt(job / f"splits/next/{NEWEST:010d}.json", way)
    assert Versions(copy, "totals").settle() == []
    assert listed(job / "splits/next") == list(range(NEWEST))
    assert begun_after(copy, NEWEST - 1) is None


@pytest.mark.parametrize("way", WAYS)
def test_a_descriptor_that_the_newest_version_has_read(copy: Warehouse, way: str) -> None:
    """Without it what was read would be read again: the job goes back to before, where it is sure."""
    job = on_spark(copy)
    path = job / f"splits/next/{NEWEST:010d}.json"
    hurt(path, way)
    assert [error.path for error in check_job(copy, "totals").damaged] == [str(path)]
    if way == "flipped":
        with pytest.raises(DamageError, match=path.name):
            Versions(copy, "totals").settle()
        assert repair_job(copy, "totals")
    else:
        assert [error.path for error in Versions(copy, "totals").settle()] == [str(path)]
    assert listed(job / "splits/next") == listed(job / "checkpoint/commits") == list(range(NEWEST))
    assert begun_after(copy, NEWEST - 1) is None


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_that_is_repeated_reads_what_it_read(made: Made, copy: Warehouse, way: str) -> None:
    """A later one had begun; the log still says what the repeated one read."""
    job = on_spark(copy)
    hurt(job / f"checkpoint/commits/{NEWEST}", way)
    assert len(check_job(copy, "totals").damaged) == 1
    done = made.stream.runs["totals"].batches.commits.log.entry(NEWEST)
    assert done is not None
    assert repair_job(copy, "totals")
    assert check_job(copy, "totals").damaged == ()
    assert listed(job / "checkpoint/commits") == list(range(NEWEST))
    assert begun_after(copy, NEWEST - 1) == BegunBatch(NEWEST, done.sequence, done.committed_at)


@pytest.mark.parametrize("way", WAYS)
def test_what_a_batch_has_begun_to_read(copy: Warehouse, way: str) -> None:
    """It is begun anew, which is no reason to go back."""
    job = on_spark(copy)
    hurt(job / "begun.json", way)
    assert [error.path for error in check_job(copy, "totals").damaged] == [str(job / "begun.json")][: way != "missing"]
    assert Versions(copy, "totals").settle() == []
    assert check_job(copy, "totals").damaged == ()
    assert begun_after(copy, NEWEST) is None


def test_what_a_batch_has_begun_to_read_is_in_the_log_once_it_is_done(copy: Warehouse) -> None:
    kill(copy)
    job = on_spark(copy)
    hurt(job / "begun.json", "cut")
    assert Versions(copy, "totals").settle() == []
    begun = begun_after(copy, NEWEST - 1)
    assert begun is not None
    assert begun.sequence == NEWEST
    assert check_job(copy, "totals").damaged == ()


def test_a_job_of_an_older_version_leaves_sparks_checkpoint(copy: Warehouse) -> None:
    job = of_an_older_version(copy)
    assert Versions(copy, "totals").settle() == []
    assert begun_after(copy, NEWEST) == BegunBatch(NEWEST + 1, NEWEST + 1, from_millis(7))
    assert listed(job / "checkpoint/commits") == list(range(NEWEST + 1))
    assert sorted(path.name for path in (job / "checkpoint").rglob("*") if path.name[0] in ".mos") == []
    assert [path.name for path in (job / "checkpoint").iterdir()] == ["commits"]


def test_a_power_cut_took_what_an_older_version_had_begun(copy: Warehouse) -> None:
    job = of_an_older_version(copy)
    (job / "checkpoint/offsets" / str(NEWEST + 1)).write_text("")
    assert Versions(copy, "totals").settle() == []
    assert begun_after(copy, NEWEST) is None
    assert [path.name for path in (job / "checkpoint").iterdir()] == ["commits"]


def test_rows_that_stood_in_a_statement_are_not_given_up_unasked(tmp_path: Path) -> None:
    with Session(str(tmp_path)) as session:
        session.sql("CREATE TABLE t (a INT); INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)")
    log = tmp_path / "warehouse/jobs/t_values/log/0000000001.json"
    hurt(log, "emptied")
    with Session(str(tmp_path)) as session:
        with pytest.raises(DamageError, match=r"0000000001.json\" is empty"):
            session.sql("CREATE TABLE t (a INT); INSERT INTO t VALUES (3)")
        assert session.repair("t_values") == [
            "It goes back to version 0: the rows of batch 1 are lost. Insert them again."
        ]
        session.sql("INSERT INTO t VALUES (2); INSERT INTO t VALUES (3)")
        assert sorted(session.query("FROM t").fetchall()) == [(1,), (2,), (3,)]
        assert [checkup.damaged for checkup in session.check()] == [()]


def test_a_damaged_record_is_no_reason_to_keep_a_job(tmp_path: Path) -> None:
    with Session(str(tmp_path)) as session:
        session.sql("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)")
    hurt(tmp_path / "warehouse/jobs/t_values/job.json", "flipped")
    with Session(str(tmp_path)) as session:
        with pytest.raises(DamageError, match=r"job.json\" is not as it was written"):
            session.sql("CREATE TABLE t (a INT); INSERT INTO t VALUES (2)")
        session.drop("t_values")
        session.sql("INSERT INTO t VALUES (2)")
        assert session.query("FROM t").fetchall() == [(2,)]


def test_all_that_says_what_was_read_is_gone(copy: Warehouse) -> None:
    """The job begins anew: else it would read its input a second time, and add it to what there is."""
    job = on_spark(copy)
    shutil.rmtree(job / "splits")
    damaged = [os.path.relpath(error.path, job) for error in check_job(copy, "totals").damaged]
    assert damaged == [f"splits/next/{n:010d}.json" for n in range(NEWEST + 1)]
    assert Versions(copy, "totals").settle()
    assert Versions(copy, "totals").newest == -1


@pytest.mark.parametrize("way", WAYS[:-1])
def test_what_was_read_long_ago_is_nowhere_else(copy: Warehouse, way: str) -> None:
    """Many descriptors are folded into one file: without it, all input would be read again."""
    for n in range(2):
        Path(copy.job("totals").commits, str(n)).unlink()
    path = Path(copy.job("totals").root, "splits", "seen-0000000127.json")
    path.parent.mkdir(exist_ok=True)
    write_sealed(copy.fs, str(path), '{"sequence": 127, "seen": []}')
    hurt(path, way)
    said: list[str] = []
    with Session(warehouse=copy.root) as session:
        assert checked(session, "totals", repair=True, write=said.append) is Outcome.DAMAGED
    text = "\n".join(said)
    assert "It says which input the job read before its last batches, which no other file says." in text
    assert (
        "hint: Restore the files from a backup, or start the job anew with --fresh: then it reads all its input again."
        in text
    )


def test_what_a_batch_left_that_was_not_committed_is_no_damage(copy: Warehouse) -> None:
    fs, place = copy.fs, next(iter(Versions(copy, "totals").directories()))
    manifests = place.manifests(0)
    manifest = read_manifest(fs, f"{manifests}/{max(fs.list(manifests))}")
    gone = {t: tuple(structs.replace(s, name=f"gone-{s.name}") for s in own) for t, own in manifest.tables.items()}
    left = f"{manifests}/{manifest_name(NEWEST - 1)}"
    write_sealed(fs, left, structs.replace(manifest, tables=gone).to_json())
    assert not check_job(copy, "totals").damaged
    Path(left).write_text("")
    assert [error.path for error in check_job(copy, "totals").damaged] == [left]


def test_what_check_prints(tmp_path: Path) -> None:
    with Session(str(tmp_path)) as session:
        session.sql("CREATE TABLE t (a INT); INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)")
        said: list[str] = []
        assert checked(session, None, repair=False, write=said.append) is Outcome.INTACT
        assert said == ['job "t_values" is intact']
        hurt(tmp_path / "warehouse/jobs/t_values/checkpoint/commits/1", "missing")
        said.clear()
        assert checked(session, "T_VALUES", repair=False, write=said.append) is Outcome.DAMAGED
        assert said == [
            'job "t_values" is damaged:',
            "  jobs/t_values/checkpoint/commits/1 is missing. It says that batch 1 is committed.",
            "  Version 0 is the newest that is intact; the job was at 1. --repair resets the job to it.",
        ]
        assert checked(session, None, repair=True, write=said.append) is Outcome.INTACT
        assert checked(session, None, repair=False, write=lambda line: None) is Outcome.INTACT


@pytest.mark.parametrize("kind", ["record", "log", "commit", "state manifest", "state segment", "result segment"])
def test_a_damaged_savepoint_is_found_and_its_rows_come_from_the_job(copy: Warehouse, kind: str) -> None:
    with Session(str(copy.root), warehouse=copy.root) as session:
        said: list[str] = []
        root = take(copy, "totals", "spare").warehouse.root
        take(copy, "totals", "other")
        path = min(Path(root).glob(KINDS[kind].replace(f"0/{NEWEST:010d}-*", "0/*").replace(f"*-{NEWEST}-*", "*")))
        is_rows = path.suffix == ".parquet"
        outcome = Outcome.INTACT if is_rows else Outcome.DAMAGED
        # A link is damaged in both, so this one is gone.
        hurt(path, "missing" if is_rows else "flipped")
        assert checked(session, "Totals", repair=False, write=said.append) is Outcome.DAMAGED
        assert said[:2] == ['savepoint "spare" is damaged:', *[line for line in said[1:2] if path.name in line]]
        assert said[-1] == 'job "totals" is intact'
        said.clear()
        assert checked(session, None, repair=True, write=said.append) is outcome
        end = (
            "is repaired: the job had its files."
            if is_rows
            else "cannot be repaired: of 1 file there is no other copy."
        )
        assert f'savepoint "spare" {end}' in said[-2]
        said.clear()
        assert checked(session, None, repair=False, write=said.append) is outcome
        assert (said[-1] == "2 savepoints are intact") == is_rows


LATER = '{"format":99,"job":"totals"}'


@pytest.mark.parametrize("kind", ["record", "state manifest", "log"])
def test_a_job_that_cannot_be_checked_is_not_taken_for_an_intact_one(copy: Warehouse, kind: str) -> None:
    said: list[str] = []
    with Session(str(copy.root), warehouse=copy.root) as session:
        session.sql("CREATE TABLE u (a INT); INSERT INTO u VALUES (1)")
        write_sealed(copy.fs, str(the_file(copy, kind)), LATER)
        assert checked(session, "totals", repair=False, write=said.append) is Outcome.UNCHECKED
        [line] = said
        assert line.startswith('job "totals" was not checked: ')
        assert line.endswith("was written by a later version of sqlstream")
        # What is beside it is checked, and damage goes first.
        assert checked(session, None, repair=True, write=said.append) is Outcome.UNCHECKED
        assert said[1:] == [line, 'job "u_values" is intact']
        hurt(Path(copy.job("u_values").record), "cut")
        assert checked(session, None, repair=False, write=said.append) is Outcome.DAMAGED


def test_a_place_without_a_warehouse_is_not_taken_for_an_intact_one(tmp_path: Path) -> None:
    said: list[str] = []
    with Session(str(tmp_path), warehouse=f"{tmp_path}/mistyped") as session:
        assert checked(session, None, repair=False, write=said.append) is Outcome.UNCHECKED
        assert said == [f'there is no warehouse in "{tmp_path}/mistyped": nothing was checked']
        (tmp_path / "mistyped").mkdir()
        assert checked(session, None, repair=False, write=said.append) is Outcome.INTACT
        assert said[1:] == ["0 jobs are intact"]


@pytest.mark.parametrize("path", ["savepoint.json", "jobs/totals/job.json", KINDS["state manifest"]])
def test_a_savepoint_that_cannot_be_checked_is_not_taken_for_an_intact_one(copy: Warehouse, path: str) -> None:
    said: list[str] = []
    with Session(str(copy.root), warehouse=copy.root) as session:
        root = Path(take(copy, "totals", "spare").warehouse.root)
        [file] = root.glob(path.replace(f"{NEWEST:010d}-*", "*"))
        file.unlink()
        write_sealed(copy.fs, str(file), LATER)
        outcome = checked(session, None, repair=False, write=said.append)
    assert any(line.startswith('savepoint "spare" was not checked: ') for line in said)
    assert outcome is Outcome.UNCHECKED


def test_a_job_that_runs_does_not_believe_a_changed_segment(made: Made, copy: Warehouse) -> None:
    path = the_file(copy, "state segment")
    run = SteppedRun(replace(made.job, warehouse=copy.root), {}, lambda: EPOCH)
    hurt(path, "flipped")
    with pytest.raises(DamageError, match=f'{path.name}" is not as it was written'):
        run.batch({0: [made.stream._write("t", rows_of(0))]})
