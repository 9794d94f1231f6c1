"""Files of CSV that DuckDB's reader does not take, or takes wrongly: long rows, line ends of several kinds, wrong quotes."""

from __future__ import annotations

import contextlib
import gzip
import itertools
from pathlib import Path
from random import Random

import duckdb
import pytest

from sqlstream import Session
from sqlstream.connectors.formats.csv_records import mixed_files, read_records, records
from sqlstream.duck.errors import translate
from sqlstream.errors import DataError
from sqlstream.testing import Stream
from tests.connectors.formats.reading_files import rows, table, write
from tests.connectors.test_malformed import KEPT, copying, declared, feed, malformed_count
from tests.properties.examples import SHARE

COLUMNS = "k BIGINT, s STRING"
LONG = "x" * 2_500_000
# So long that the return behind it is the last character that is read at a time.
BLOCK = "x\r\n" * ((512 << 10) // 3) + "y" * ((512 << 10) % 3 - 1)
# The text of a file, with its right rows.
RIGHT: list[tuple[str, list[tuple[int, str | None]]]] = [
    ("1,a\r\n2,b\n", [(1, "a"), (2, "b")]),
    ("1,a\n2,b\r\n3,c\r", [(1, "a"), (2, "b"), (3, "c")]),
    ('1,"a\r\nb"\n2,"c\nd"\n', [(1, "a\r\nb"), (2, "c\nd")]),
    ('1,"a\nb"\r\n2,"c\r\nd"\r\n3,"e\rf"', [(1, "a\nb"), (2, "c\r\nd"), (3, "e\rf")]),
    (f"1,{LONG}\n2,b\n", [(1, LONG), (2, "b")]),
    (f'1,a\n2,"{LONG}\n{LONG}"\n3,\n', [(1, "a"), (2, f"{LONG}\n{LONG}"), (3, None)]),
    # Further fields that are NULL are nothing, as DuckDB's reader has it.
    ("1,a,\r\n2,b,,\n", [(1, "a"), (2, "b")]),
]


def copied(path: Path, **options: str) -> Stream:
    return copying(declared(COLUMNS, "csv", **options), COLUMNS)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("case", range(len(RIGHT)))
@pytest.mark.parametrize("options", [{}, {"csv__errors_to": "bad"}], ids=["strict", "keeping"])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_rows_are_read_whatever_ends_them(tmp_path: Path, case: int, options: dict[str, str], name: str) -> None:
    text, expected = RIGHT[case]
    body = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(body) if name.endswith(".gz") else body)
    with copied(tmp_path, **options) as stream:
        feed(stream, tmp_path / name)
        assert sorted(stream.rows("out")) == expected
        assert malformed_count(stream) == 0
        assert stream.verify("out").is_explained


def test_a_header_and_other_files_beside(tmp_path: Path) -> None:
    mixed, plain = tmp_path / "a.csv", tmp_path / "b.csv"
    mixed.write_bytes(b"\xef\xbb\xbfs,more,k\na,,1\r\n\n\r\nb,,2\n")
    plain.write_text("k,s\n3,c\nx,d\n")
    with copied(tmp_path, csv__header="true", csv__errors_to="bad") as stream:
        feed(stream, mixed, plain)
        assert sorted(stream.rows("out")) == [(1, "a"), (2, "b"), (3, "c")]
        assert stream.query(KEPT) == [("t", 3, "x,d", 'Column "k" does not hold a BIGINT')]


MALFORMED = (
    "1,a\r\n"
    'x,"b\n'
    'b"\n'
    "\n"
    "3\r\n"
    '4,"c"d\r\n'
    f"5.5,{LONG}\n"
    "6,e,,f\n"
    "7,f\n"
)  # fmt: skip
REASONS = [
    (2, 'Column "k" does not hold a BIGINT'),
    (4, "The row has fewer than 2 fields"),
    (5, "A quote is not closed, or stands within a field"),
    (6, 'Column "k" does not hold a BIGINT'),
    (7, "The row has more than 2 fields"),
]


def test_what_is_malformed_there_has_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(MALFORMED.encode())
    with copied(tmp_path, csv__errors_to="bad") as stream:
        feed(stream, path)
        assert sorted(stream.rows("out")) == [(1, "a"), (7, "f")]
        found = stream.query(KEPT)
        assert [text for _, _, text, _ in found][:3] == ['x,"b\nb"', "3", '4,"c"d']
        reasons = [(n, why) for _, n, _, why in found]
        assert [why for _, why in reasons] == [why for _, why in REASONS]
        assert malformed_count(stream) == len(REASONS)
    with copied(tmp_path) as stream:
        with pytest.raises(DataError) as caught:
            feed(stream, path)
        assert caught.value.message == f'row 2 of file "{path}" of table "t" is malformed'
        assert caught.value.detail == 'Column "k" does not hold a BIGINT: x,"b\nb"'


def test_a_quote_that_is_never_closed_takes_the_rest_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('1,a\n2,"b\n3,c\n4,d\n')
    with copied(tmp_path, csv__errors_to="bad") as stream:
        feed(stream, path)
        assert stream.rows("out") == [(1, "a")]
        assert [(n, text) for _, n, text, _ in stream.query(KEPT)] == [(2, '2,"b\n3,c\n4,d')]


def test_rows_behind_a_wrong_quote_are_found(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('1,a\n2,"b"x\n3,"c\n4,"d"\n5,e\n')
    with copied(tmp_path, csv__errors_to="bad") as stream:
        feed(stream, path)
        # The quote of row 3 is closed in the next line, where it is wrong.
        assert sorted(stream.rows("out")) == [(1, "a"), (5, "e")]
        assert [(n, text) for _, n, text, _ in stream.query(KEPT)] == [(2, '2,"b"x'), (3, '3,"c\n4,"d"')]


def test_malformed_rows_of_every_file_are_counted(tmp_path: Path) -> None:
    """Each file is read by itself where a column has its name."""
    paths = [tmp_path / f"{n}.csv" for n in range(3)]
    for n, path in enumerate(paths):
        path.write_text(f"{n},a\nx,b\n1,2,3\n")
    columns = f"{COLUMNS}, file STRING METADATA FROM 'file.name'"
    for options in ({"csv__errors_to": "bad"}, {"csv__ignore_parse_errors": "true"}):
        with copying(declared(columns, "csv", **options), "k BIGINT, file STRING") as stream:
            feed(stream, *paths)
            assert sorted(stream.rows("out")) == [(n, f"{n}.csv") for n in range(3)]
            assert malformed_count(stream) == 6
            if "csv__errors_to" in options:
                assert stream.query("SELECT count(*), count(DISTINCT file) FROM bad") == [(6, 3)]


@pytest.mark.parametrize("quote", ['"', "'", ""])
@pytest.mark.parametrize("escape", ["", "\\"])
def test_records_end_where_they_do(tmp_path: Path, quote: str, escape: str) -> None:
    options = {"csv.quote-character": quote} | ({"csv.escape-character": escape} if escape else {})
    fields = ["", "a", *([f"{quote}b,\r\nc{quote}", f"{quote}{escape or quote}{quote}\n{quote}"] if quote else [])]
    wanted = [",".join(pair) for pair in itertools.product(fields, repeat=2)]
    for ends in (["\n"], ["\r\n"], ["\r"], ["\n", "\r\n"]):
        text = "".join(row + end for row, end in zip(wanted, itertools.cycle(ends), strict=False))
        path = write(tmp_path / "a.csv", text).path
        found = list(records(path, options))
        assert [record.text for record in found] == wanted
        assert [record.number for record in found] == list(range(1, len(wanted) + 1))


@pytest.mark.parametrize("text", ["'a'", "'a\\'b'", "'\\\\'", "'a\\xb'", "'a\nb'", "'a,b'", "a\\b", "''", ""])
@pytest.mark.parametrize("escape", ["\\", "'"])
def test_fields_are_those_of_the_other_reader(tmp_path: Path, text: str, escape: str) -> None:
    if escape == "'":
        text = text.replace("a\\'b", "a''b")
    split = write(tmp_path / "a.csv", f"1,{text}\n")
    quoted = {"quote_character": "'"} | ({"escape_character": escape} if escape != "'" else {})
    csv = table("csv", {"k": "BIGINT", "s": "VARCHAR"}, **quoted)
    with duckdb.connect() as con:
        plan = read_records(con, [split], csv, csv.physical)
        assert con.execute(plan.sql).fetchall() == rows(con, csv, split)


@pytest.mark.parametrize("options", [{}, {"csv__errors_to": "bad"}], ids=["strict", "keeping"])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_no_line_of_one_field_is_two_rows(tmp_path: Path, options: dict[str, str], name: str) -> None:
    body = b"x\n4,\r\n5\n\n"
    (tmp_path / name).write_bytes(gzip.compress(body) if name.endswith(".gz") else body)
    with copying(declared("s STRING", "csv", **options), "s STRING") as stream:
        feed(stream, tmp_path / name)
        # An empty line is a row of one field, a NULL; the end of a line is none.
        assert sorted(stream.rows("out"), key=str) == [("4",), ("5",), ("x",), (None,)]
        assert malformed_count(stream) == 0
        assert stream.verify("out").is_explained


@pytest.mark.parametrize("columns", [{"s": "VARCHAR"}, {"s": "VARCHAR", "t": "VARCHAR"}], ids=["one", "two"])
@pytest.mark.parametrize("header", ["false", "true"])
def test_both_readers_find_the_same_rows(tmp_path: Path, columns: dict[str, str], header: str) -> None:
    """What DuckDB's reader takes without an error has the rows that the other one finds."""
    csv, random = table("csv", columns, header=header), Random(26)
    head = ("s,t\n" if len(columns) == 2 else "s\n") * (header == "true")
    compared, tries = 0, max(100, round(400 * SHARE))
    with duckdb.connect() as con:
        for number in range(tries):
            body = "".join(random.choices(["x", "4", ",", "\n", "\r\n", "\r", '""'], k=random.randint(1, 9)))
            split = write(tmp_path / f"{number}.csv", head + body)
            with contextlib.suppress(duckdb.Error):
                found = rows(con, csv, split)
                assert found == con.execute(read_records(con, [split], csv, csv.physical).sql).fetchall(), repr(body)
                compared += 1
    assert compared > tries // 10


def test_files_that_are_mixed(tmp_path: Path) -> None:
    for text, expected in (
        ("a\nb\n", False),
        ("a\r\nb\r\n", False),
        ("a\rb", False),
        ("", False),
        ("a\r\nb\n", True),
        ("a\rb\n", True),
        ("a\nb\r", True),
        ("a\r\nb\r", True),
        (f"{BLOCK}\r\na\r\n", False),
        (f"{BLOCK}\r\r\n", True),
        (LONG, True),
    ):
        assert bool(mixed_files([write(tmp_path / "a.csv", text)])) == expected, text[:9]


def project(path: Path, text: str, options: str = "") -> Session:
    (path / "in").mkdir()
    (path / "in" / "a.csv").write_bytes(text.encode())
    session = Session(str(path))
    session.sql(
        f"CREATE TABLE t ({COLUMNS}) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'csv'{options})"
    )
    return session


@pytest.mark.parametrize("case", [0, 2, 4])
@pytest.mark.parametrize("options", ["", ", 'csv.ignore-parse-errors' = 'true'"])
def test_queries_read_them_too(tmp_path: Path, case: int, options: str) -> None:
    text, expected = RIGHT[case]
    with project(tmp_path, text, options) as session:
        assert session.query("SELECT * FROM t ORDER BY k").fetchall() == expected


ADVICE = (
    "strict_mode",
    "ignore_errors",
    "null_padding",
    "max_line_size",
    "maximum_line_size",
    "auto_detect",
    "Possible",
)


@pytest.mark.parametrize("row", ['2,"b"x', "2", "2,b,c", '2,"b'])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["alike", "mixed"])
def test_a_query_says_which_row_is_malformed(tmp_path: Path, row: str, end: str) -> None:
    with project(tmp_path, f"1,a{end}{row}\n3,c\n") as session:
        with pytest.raises(duckdb.Error) as raised:
            session.query("SELECT * FROM t").fetchall()
        said = translate(raised.value, "SELECT * FROM t")
        assert said.message == f'row 2 of file "{tmp_path}/in/a.csv" is malformed'
        assert not [word for word in ADVICE if word in f"{said.message} {said.detail} {said.hint}"]
