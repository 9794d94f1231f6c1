"""CSV files are read as declared, or refused with the file, the row and the reason."""

from __future__ import annotations

import gzip
from datetime import datetime
from pathlib import Path

import pytest

from sqlstream.connectors.formats.reading import read
from tests.connectors.formats.reading_files import Con, failure, rows, skipping, table, write


def test_csv_follows_rfc_4180(con: Con, tmp_path: Path) -> None:
    declared = table("csv", {"a": "BIGINT", "s": "VARCHAR", "ts": "TIMESTAMP"})
    text = '1,"a ""b"", c\r\nd",2024-01-01T10:00:00Z\r\n2,"",\r\n,,\r\n4,é,2024-01-01 10:00:00.5'
    expected = [
        (1, 'a "b", c\r\nd', datetime(2024, 1, 1, 10)),
        (2, "", None),
        (None, None, None),
        (4, "é", datetime(2024, 1, 1, 10, 0, 0, 500_000)),
    ]
    assert rows(con, declared, write(tmp_path / "a.csv", text)) == expected
    assert rows(con, declared, write(tmp_path / "a.csv.gz", gzip.compress(text.encode()))) == expected


def test_csv_with_a_header_goes_by_name(con: Con, tmp_path: Path) -> None:
    declared = table("csv", {"A": "BIGINT", "b c": "VARCHAR"}, header="true", ignore_parse_errors="true")
    first = write(tmp_path / "a.csv", '\ufeffmore,"b c",a\nx,y,1\nx,y,oops\n')
    second = write(tmp_path / "b.csv.gz", gzip.compress(b"a,b c\n2,z\n"))
    empty = write(tmp_path / "c.csv", "")
    assert skipping(con, declared, first, second, empty) == ([(1, "y"), (2, "z")], 1)
    without = write(tmp_path / "d.csv", "a,bc\n1,2\n")
    error = failure(con, declared, without)
    assert error.message == f'the header of file "{without.path}" of table "t" has no column "b c"'
    assert error.hint == 'did you mean "bc"?'
    assert 'has column "A" twice' in failure(con, declared, write(tmp_path / "e.csv", "a,b c,A\n")).message


def test_csv_characters_and_nulls(con: Con, tmp_path: Path) -> None:
    declared = table(
        "csv",
        {"a": "BIGINT", "s": "VARCHAR"},
        field_delimiter="\\t",
        quote_character="'",
        escape_character="\\",
        null_literal="N/A",
        header="true",
    )
    file = write(tmp_path / "a.tsv", "'s'\ta\n'it\\'s'\t1\nN/A\tN/A\n'N/A'\t2\n")
    assert rows(con, declared, file) == [(1, "it's"), (None, None), (2, "N/A")]


CSV = {"a": "BIGINT", "s": "VARCHAR", "ts": "TIMESTAMP"}
MALFORMED_CSV = [
    ("x,y,", 'Column "a" does not hold a BIGINT'),
    ("1,y,1700000000", 'Column "ts" does not hold a TIMESTAMP'),
    ('"",y,', 'Column "a" does not hold a BIGINT'),
    ("1.5,y,", 'Column "a" does not hold a BIGINT'),
    ("-15e-1,y,", 'Column "a" does not hold a BIGINT'),
    ("true,y,", 'Column "a" does not hold a BIGINT'),
    ("x,y,z", 'Column "ts" does not hold a TIMESTAMP'),
    ("1,y", "The row has fewer than 3 fields"),
    ("1,y,,z,z", "The row has more than 3 fields"),
    ('1,"y"z,', "A quote is not closed, or stands within a field"),
]


@pytest.mark.parametrize(("row", "reason"), MALFORMED_CSV)
def test_malformed_csv_fails_with_its_row(con: Con, tmp_path: Path, row: str, reason: str) -> None:
    file = write(tmp_path / "a.csv", f'1,"two\nlines",\n2,,\n{row}\n3,,\n')
    error = failure(con, table("csv", CSV), file)
    assert error.message == f'row 3 of file "{file.path}" of table "t" is malformed'
    assert error.detail == f"{reason}: {row}"


def test_malformed_csv_is_skipped_and_counted(con: Con, tmp_path: Path) -> None:
    declared = table("csv", CSV, ignore_parse_errors="true")
    files = [
        write(tmp_path / f"{i}.csv", "".join(f"{n},ok,\n{row}\n" for n, (row, _) in enumerate(MALFORMED_CSV)))
        for i in range(3)
    ]
    latin = write(tmp_path / "latin.csv", "1,é,\n2,e,\n".encode("latin1"))
    plan = read(con, [*files, latin], declared)
    # Reading twice, as a plan with two uses of the table does, counts once.
    for _ in range(2):
        plan.take(con)
        found = con.execute(f"FROM {plan.well_formed}").fetchall()
        assert len(found) == 3 * len(MALFORMED_CSV) + 1
    assert plan.skipped(con) == 3 * len(MALFORMED_CSV) + 1
    plan.forget(con)
    assert con.execute("SELECT count(*) FROM duckdb_tables()").fetchone() == (0,)
