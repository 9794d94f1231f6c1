"""The order of arrival: each source gives the rows of its splits their places, however tasks share the splits."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.interface import ReadContext
from sqlstream.duck.internal_columns import ARRIVED
from sqlstream.duck.sql import Select, quote_name, quote_text
from sqlstream.physical.plan import ScanStage
from sqlstream.runtime.batch_descriptors import Work, from_lines
from sqlstream.runtime.feed import Feed
from sqlstream.runtime.scan_rows import ScanRows
from sqlstream.units import EPOCH
from sqlstream.warehouse.filesystem import LocalFilesystem
from tests.kinds import last_job


def scan_of(script: str) -> ScanStage:
    [stage] = last_job(script).physical.scans
    return replace(stage, table=replace(stage.table, columns=(*stage.table.columns, ARRIVED)))


def read(stage: ScanStage, project: Path, *, slots: int = 2) -> Iterator[list[tuple[int, Any]]]:
    """Yield the rows of each batch as (place, value of the first column), as the tasks of a job read them."""
    feed = Feed(
        LocalFilesystem(), str(project / "feed"), [stage], range(slots), project=str(project), finish=True, paced=False
    )
    try:
        while (descriptor := feed.compose()) is not None:
            rows: list[tuple[int, Any]] = []
            for text in feed.write(descriptor):
                work = [one for one in from_lines(text) if one.split is not None]
                if work:
                    rows += _of_task(stage, project, work)
            yield rows
    finally:
        feed.close()


def _of_task(stage: ScanStage, project: Path, work: Sequence[Any]) -> list[tuple[int, Any]]:
    with duckdb.connect(config={"threads": 1, "preserve_insertion_order": False}) as con:
        scanned = ScanRows(stage.table, work, ReadContext(str(project), str(project / "warehouse"), EPOCH))
        plan = scanned.take(con)
        items = f"{ARRIVED.name}, {quote_name(stage.table.columns[0].name)}"
        rows = con.execute(f"SELECT {items} FROM {scanned.well_formed(con, plan)}").fetchall()
        [split, *_] = scanned.splits
        alone = con.execute(
            f"SELECT count(*), count({ARRIVED.name}) FROM {scanned.of_split(con, split, None)}"
        ).fetchall()
        assert alone[0][0] > 0
        assert alone[0][1] == 0
        return rows


def in_order(batches: Iterator[list[tuple[int, Any]]]) -> list[Any]:
    """Return the rows of all batches in the order of their places, which no two rows share."""
    rows = [row for batch in batches for row in batch]
    assert len({place for place, _ in rows}) == len(rows)
    return [n for _, n in sorted(rows)]


def files(tmp_path: Path, form: str, more: str = "") -> ScanStage:
    return scan_of(
        f"CREATE TABLE t (n INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = '{form}'{more}); SELECT n FROM t"
    )


def put(folder: Path, name: str, rows: Sequence[int], form: str, time: int) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    if form == "parquet":
        values = Select(f"SELECT unnest({list(rows)})::INT AS n")
        duckdb.sql(f"COPY ({values}) TO {quote_text(str(path))} (FORMAT parquet, ROW_GROUP_SIZE 2048)")
    else:
        path.write_text("".join(f"{json.dumps({'n': n}) if form == 'json' else n}\n" for n in rows))
    os.utime(path, (time, time))


@pytest.mark.parametrize("form", ["parquet", "json", "csv"])
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_rows_of_files_come_by_time_name_and_line(tmp_path: Path, form: str, slots: int) -> None:
    rows = [(n * 7919) % 10_007 for n in range(9_000)]
    put(tmp_path / "in", "b", rows[:5000], form, 1_700_000_000)
    put(tmp_path / "in", "c", rows[5000:5003], form, 1_700_000_000)
    put(tmp_path / "in", "a", rows[5003:], form, 1_700_000_001)
    assert in_order(read(files(tmp_path, form), tmp_path, slots=slots)) == rows


@pytest.mark.parametrize("form", ["parquet", "json"])
def test_the_order_of_files_does_not_depend_on_batches(tmp_path: Path, form: str) -> None:
    rows = list(range(50, 0, -1))
    for number in range(5):
        put(tmp_path / "in", f"{9 - number}", rows[number * 10 : number * 10 + 10], form, 1_700_000_000 + number)
    stage = files(tmp_path, form, ", 'source.max-files-per-batch' = '2'")
    assert in_order(read(stage, tmp_path)) == rows


# More files of a batch than conditions tell apart, and few.
@pytest.mark.parametrize("most", [40, 4])
@pytest.mark.parametrize("form", ["parquet", "json"])
def test_rows_of_many_files_come_in_their_order(tmp_path: Path, form: str, most: int) -> None:
    rows = list(range(400, 0, -1))
    for number in range(40):
        put(tmp_path / "in", f"it's {number:02}", rows[number * 10 : number * 10 + 10], form, 1_700_000_000)
    stage = files(tmp_path, form, f", 'source.max-files-per-batch' = '{most}'")
    assert in_order(read(stage, tmp_path, slots=1)) == rows


@pytest.mark.parametrize("another", [False, True])
def test_a_task_takes_parts_of_a_file_that_do_not_follow_each_other(tmp_path: Path, another: bool) -> None:
    rows = [(n * 7919) % 10_007 for n in range(9_000)]
    others = list(range(-1, -5000, -1))
    put(tmp_path / "in", "a", rows, "parquet", 1_700_000_000)
    put(tmp_path / "in", "b", others, "parquet", 1_700_000_000)
    # In the order of their places.
    parts = [("a", 0), ("a", 4096), ("a", 6144), *([("b", 2048)] if another else []), ("a", 2048)]
    work = []
    for number, (name, at) in enumerate(parts):
        path = tmp_path / "in" / name
        size, time = path.stat().st_size, path.stat().st_mtime_ns
        split = FileSplit(str(path), size, time, 1, rows=(at, at + 2048))
        # Of two parts that follow each other the second one has the places behind those of the first one.
        work.append(Work(0, 0, 0, EPOCH, last=True, split=split.to_list(), arrived=7 + 2048 * number))
    expected = [n for name, at in parts for n in (rows if name == "a" else others)[at : at + 2048]]
    assert in_order(iter([_of_task(files(tmp_path, "parquet"), tmp_path, work)])) == expected


def test_places_go_on_after_a_restart_and_after_descriptors_are_folded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sqlstream.runtime.feed.KEPT", 1)
    rows = list(range(40, 0, -1))
    got: list[tuple[int, Any]] = []
    for number in range(4):
        put(tmp_path / "in", f"{9 - number}", rows[number * 10 : number * 10 + 10], "json", 1_700_000_000 + number)
        stage = files(tmp_path, "json", ", 'source.monitor-interval' = '0 s'")
        feed = Feed(LocalFilesystem(), str(tmp_path / "feed"), [stage], range(2), project=str(tmp_path), finish=False)
        descriptor = feed.compose()
        assert descriptor is not None
        for text in feed.write(descriptor):
            if work := from_lines(text):
                got += _of_task(stage, tmp_path, work)
        feed.fold(descriptor.sequence)
        feed.close()
    assert [n for _, n in sorted(got)] == rows
    assert list((tmp_path / "feed").glob("seen-*"))


def test_rows_of_values_and_generators_come_by_their_numbers(tmp_path: Path) -> None:
    written = scan_of("SELECT n FROM (VALUES (3), (1), (2)) AS t (n)")
    assert in_order(read(written, tmp_path)) == [3, 1, 2]
    kind = "'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '50000'"
    generated = scan_of(
        f"CREATE TABLE g (n INT) WITH ('connector' = 'datagen', 'number-of-rows' = '50000', {kind}); SELECT n FROM g"
    )
    (tmp_path / "g").mkdir()
    assert in_order(read(generated, tmp_path / "g")) == list(range(1, 50_001))


def test_rows_of_a_python_source_come_by_partition_as_it_gives_them(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("10")
    numbers = scan_of(
        "CREATE TABLE t (k BIGINT, part STRING) WITH ('connector' = 'python', "
        f"'class' = 'tests.connectors.own_connectors.Numbers', 'file' = '{tmp_path / 'count'}', 'split-into' = '3');"
        "SELECT k FROM t"
    )
    for slots in (1, 2):
        (tmp_path / str(slots)).mkdir()
        rows = in_order(read(numbers, tmp_path / str(slots), slots=slots))
        assert rows == [0, 3, 6, 9, 1, 4, 7, 2, 5, 8]
