"""Numbers that are too large for their column are malformed, as are all values that do not fit; Infinity is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from sqlstream import Session
from sqlstream.catalog import Column, Table
from sqlstream.connectors.filesystem.lookup import CurrentFilesLookup
from sqlstream.connectors.formats import faults
from sqlstream.connectors.formats.faults import number_faults
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.formats.reading import read_exactly
from sqlstream.connectors.formats.registry import FORMATS
from sqlstream.connectors.read_plan import VALUE, ReadPlan
from sqlstream.connectors.read_plan import WRONG as REASON
from sqlstream.duck import databases
from sqlstream.duck.errors import translate
from sqlstream.duck.internal_columns import INTERNAL
from sqlstream.duck.sql import Relation
from sqlstream.errors import DataError, JobError, SqlStreamError
from sqlstream.testing import Stream
from tests.connectors.formats.reading_files import Con, split, table
from tests.connectors.test_malformed import KEPT, declared, feed, malformed_count

COLUMNS = "k BIGINT, d DOUBLE, f FLOAT"
IN_JSON = "('connector' = 'filesystem', 'path' = 'in', 'format' = 'json')"
INFINITE = float("inf")
GREAT = [(1, 1e308, None), (2, INFINITE, -INFINITE), (3, -INFINITE, INFINITE), (4, None, 2.0**127), (5, 0.0, 0.0)]
# By format: lines of those rows, the last of which is too small to be told from 0.
LINES = {
    "csv": ["1,1e308,", "2,Infinity,-inf", "3,-INF,infinity", f"4,,{2**127}", "5,1e-400,1E-60"],
    "json": [
        '{"k": 1, "d": 1e308}',
        '{"k": 2, "d": Infinity, "f": "-inf"}',
        '{"k": 3, "d": "-Infinity", "f": Infinity}',
        f'{{"k": 4, "f": {2**127}}}',
        '{"k": 5, "d": 1e-400, "f": "1E-60"}',
    ],
}
OF_D, OF_F = 'Column "d" does not hold a DOUBLE', 'Column "f" does not hold a FLOAT'
# Lines with a number that is too large, by format and reason.
WRONG = {
    ("csv", OF_D): ["9,1e400,", "9,-1.5E+999,0", f"9,{'9' * 400},"],
    ("csv", OF_F): ["9,,1e39", f"9,,-{2**129}"],
    ("json", OF_D): [
        '{"k": 9, "d": 1e400}',
        '{"k": 9, "d": "-1.5E+999", "f": 0}',
        f'{{"k": 9, "d": {"9" * 400}}}',
    ],
    ("json", OF_F): [
        '{"k": 9, "f": 1e39}',
        '{"k": 9, "f": "1e39"}',
        f'{{"k": 9, "f": -{2**129}}}',
        '{"k": 9, "f": 1e400}',
    ],
}
CASES = [(form, why, line) for (form, why), lines in WRONG.items() for line in lines]


def write(folder: Path, form: str, *more: str) -> Path:
    path = folder / f"a.{form}"
    path.write_text("".join(f"{line}\n" for line in (*LINES[form][:2], *more, *LINES[form][2:])))
    return path


def copied(form: str, columns: str = COLUMNS, **options: str) -> Stream:
    names = "x" if columns.startswith("x ") else "k, d, f"
    return Stream(
        f"{declared(columns, form, **options)} CREATE TABLE out ({columns}); INSERT INTO out SELECT {names} FROM t"
    )


@pytest.mark.parametrize("options", [{}, {"errors_to": "bad"}], ids=["strict", "keeping"])
@pytest.mark.parametrize("form", LINES)
def test_infinity_that_is_called_so_is_read(tmp_path: Path, form: str, options: dict[str, str]) -> None:
    with copied(form, **{f"{form}__{name}": value for name, value in options.items()}) as stream:
        feed(stream, write(tmp_path, form))
        assert sorted(stream.rows("out")) == GREAT
        assert malformed_count(stream) == 0
        assert stream.verify("out").is_explained


@pytest.mark.parametrize(("form", "why", "line"), CASES)
def test_a_number_that_is_too_large_is_malformed(tmp_path: Path, form: str, why: str, line: str) -> None:
    path = write(tmp_path, form, line)
    with copied(form) as stream:
        with pytest.raises(DataError) as failed:
            feed(stream, path)
        what = "line" if form == "json" else "row"
        assert failed.value.message == f'{what} 3 of file "{path}" of table "t" is malformed'
        assert failed.value.detail is not None
        assert failed.value.detail.startswith(why)
    with copied(form, **{f"{form}__errors_to": "bad"}) as stream:
        feed(stream, path)
        assert sorted(stream.rows("out")) == GREAT
        assert stream.query(KEPT) == [("t", 3, line, why)]
        assert stream.verify("out").is_explained


NESTED: list[tuple[str, str, str, Any]] = [
    ("x DOUBLE[]", '{"x": [1, Infinity]}', '{"x": [1, 1e400]}', [1.0, INFINITE]),
    ("x ROW<a DOUBLE, b INT>", '{"x": {"a": "inf"}}', '{"x": {"a": 1e400}}', {"a": INFINITE, "b": None}),
    ("x MAP<STRING, FLOAT>", '{"x": {"a": -Infinity}}', '{"x": {"a": "1e39"}}', {"a": -INFINITE}),
    ("x ROW<l ARRAY<FLOAT>>", '{"x": {"l": [Infinity]}}', '{"x": {"l": [0, 1e400]}}', {"l": [INFINITE]}),
]


@pytest.mark.parametrize(("column", "right", "wrong", "value"), NESTED)
def test_numbers_within_other_values(tmp_path: Path, column: str, right: str, wrong: str, value: object) -> None:
    path = tmp_path / "a.json"
    path.write_text(f"{right}\n{wrong}\n")
    with copied("json", column, json__errors_to="bad") as stream:
        feed(stream, path)
        assert stream.rows("out") == [(value,)]
        assert [(number, text) for _, number, text, _ in stream.query(KEPT)] == [(2, wrong)]
    with copied("json", column) as stream, pytest.raises(DataError, match="line 2 of file"):
        feed(stream, path)
    path.write_text(f"{right}\n")
    with copied("json", column) as stream:
        feed(stream, path)
        assert stream.rows("out") == [(value,)]


@pytest.mark.parametrize("form", LINES)
def test_queries_read_the_same_numbers(tmp_path: Path, form: str) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in", form)
    with Session(str(tmp_path)) as session:
        options = f"'connector' = 'filesystem', 'path' = 'in', 'format' = '{form}'"
        session.sql(f"CREATE TABLE t ({COLUMNS}) WITH ({options})")
        assert session.query("SELECT * FROM t ORDER BY k").fetchall() == GREAT
        write(tmp_path / "in", form, WRONG[form, OF_D][0])
        with pytest.raises(duckdb.Error) as failed:
            session.query("SELECT * FROM t").fetchall()
        said = translate(failed.value, "SELECT * FROM t").render()
        wanted = [f"{tmp_path}/in/a.json", OF_D] if form == "json" else ["too large"]
        assert all(part in said for part in wanted), said


@pytest.mark.parametrize(("column", "right", "wrong", "value"), NESTED)
def test_queries_read_numbers_within_other_values(
    tmp_path: Path, column: str, right: str, wrong: str, value: object
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text(f"{right}\n")
    with Session(str(tmp_path)) as session:
        session.sql(f"CREATE TABLE t ({column}) WITH {IN_JSON}")
        assert session.query("SELECT x FROM t").fetchall() == [(value,)]
        (tmp_path / "in/b.json").write_text(f"{right}\n{wrong}\n")
        with pytest.raises(duckdb.Error) as failed:
            session.query("SELECT x FROM t").fetchall()
        said = translate(failed.value, "SELECT x FROM t").render()
        assert f'file "{tmp_path}/in/b.json" has a malformed row' in said


def test_a_query_looks_at_the_texts_of_numbers_only_where_one_is_infinite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = list[str]()

    def reading(con: Con, splits: Sequence[FileSplit], declared: Table) -> ReadPlan:
        looked.extend(Path(split.path).name for split in splits)
        return read_exactly(con, splits, declared)

    monkeypatch.setattr(faults, "read_exactly", reading)
    (tmp_path / "in").mkdir()
    rows = "".join(f'{{"k": {k}, "d": {k}.5, "f": "1e3"}}\n' for k in range(5000))
    (tmp_path / "in/a.json").write_text(rows)
    (tmp_path / "in/[b].json").write_text(rows)
    with Session(str(tmp_path)) as session:
        session.sql(f"CREATE TABLE t ({COLUMNS}) WITH {IN_JSON}")
        total = "SELECT count(*), sum(d), max(f) FROM t"
        assert session.query(total).fetchall() == [(10_000, 25_000_000.0, 1000.0)]
        assert looked == []
        (tmp_path / "in/[b].json").write_text(rows + '{"k": 1, "d": Infinity}\n' * 3000)
        assert session.query(total).fetchall() == [(13_000, INFINITE, 1000.0)]
        assert looked == ["[b].json"]
        # 1.5 is malformed, too.
        (tmp_path / "in/a.json").write_text('{"k": 1.5, "d": 1}\n')
        with pytest.raises(duckdb.Error) as failed:
            session.query(total).fetchall()
        assert 'Column "k" does not hold a BIGINT' in translate(failed.value, total).render()


def test_the_function_that_looks_at_texts_reads_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"k": 1, "d": 1e400}\n')
    declared_as = table("json", {"k": "BIGINT", "d": "DOUBLE", "f": "FLOAT"})
    fault = number_faults([split(tmp_path / "a.json")], declared_as)
    assert OF_D in fault(str(tmp_path / "a.json"))
    (tmp_path / "b.json").write_text('{"k": 1, "d": 1e400}\n')
    assert fault(str(tmp_path / "b.json")) == ""


def test_lookups_read_the_same_numbers(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = write(tmp_path / "in", "json")
    options = {"connector": "filesystem", "path": "in", "format": "json"}
    columns = (Column("k", "BIGINT"), Column("d", "DOUBLE"), Column("f", "FLOAT"))
    keys = pa.table({"k": pa.array([2], pa.int64())})
    look_up = CurrentFilesLookup(Table("t", columns, options=options), str(tmp_path))
    assert look_up(keys).select(["k", "d", "f"]).to_pylist() == [{"k": 2, "d": INFINITE, "f": -INFINITE}]
    with databases.passing() as con:
        named = f"SELECT count(*) FROM duckdb_functions() WHERE starts_with(function_name, '{INTERNAL}number_faults')"
        assert con.execute(named).fetchall() == [(0,)]
    path.write_text(WRONG["json", OF_D][0] + "\n")
    with pytest.raises(JobError, match=r"line 1 of file .* is malformed"):
        look_up(keys)


def test_a_literal_that_is_too_large_is_refused_where_it_stands() -> None:
    with pytest.raises(SqlStreamError, match="the number is too large") as failed, Stream("SELECT 1e400 AS x"):
        pass
    assert failed.value.span is not None
    assert failed.value.span.text == "1e400"


@pytest.mark.parametrize("form", LINES)
def test_messages_have_the_same_numbers(form: str) -> None:
    declared_as = table(form, {"k": "BIGINT", "d": "DOUBLE", "f": "FLOAT"}, ignore_parse_errors="true")
    wrong = [(line, why) for (of, why), lines in WRONG.items() if of == form for line in lines]
    read_values = FORMATS[form].read_values
    assert read_values is not None
    with databases.passing() as con:
        con.register("lines", pa.table({VALUE: [*LINES[form], *(line for line, _ in wrong)]}))
        rows = read_values(con, Relation("lines"), declared_as, declared_as.stored, [])
        assert con.execute(f"SELECT k, d, f FROM {rows} WHERE {REASON} IS NULL ORDER BY k").fetchall() == GREAT
        found = con.execute(f"SELECT {REASON} FROM {rows} WHERE {REASON} IS NOT NULL ORDER BY ALL").fetchall()
        assert found == sorted((why,) for _, why in wrong)
