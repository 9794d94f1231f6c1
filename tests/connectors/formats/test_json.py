"""Lines of JSON are read as declared, or refused with the file, the line and the reason."""

from __future__ import annotations

import gzip
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from sqlstream.connectors.formats.faults import malformed_rows
from tests.connectors.formats.reading_files import Con, failure, rows, skipping, table, write

NESTED = {
    "a": "BIGINT",
    "s": "STRUCT(x INTEGER, y VARCHAR[])",
    "l": "DOUBLE[]",
    "m": "MAP(VARCHAR, INTEGER)",
    "i": "INTEGER[][]",
}


def test_json_lines_are_read_by_key(con: Con, tmp_path: Path) -> None:
    declared = table("json", {"a": "BIGINT", "ts": "TIMESTAMP", "z": "TIMESTAMP WITH TIME ZONE", "it's": "VARCHAR"})
    text = (
        '{"ts": "2024-01-01T10:00:00.123456Z", "z": "2024-01-01T10:00:00+02:00", "a": 1, "it\'s": "x", "more": [1]}\n'
        '\n{}\n{"a": "12", "ts": "2024-01-01", "it\'s": {"k": 1}}'
    )
    expected = [
        (1, datetime(2024, 1, 1, 10, 0, 0, 123456), datetime(2024, 1, 1, 8, tzinfo=UTC), "x"),
        (None, None, None, None),
        (12, datetime(2024, 1, 1), None, '{"k":1}'),
    ]
    plain = write(tmp_path / "a.json", text)
    packed = write(tmp_path / "a.json.gz", gzip.compress(text.encode()))
    zstd = write(tmp_path / "a.json.zst", pa.compress(text.encode(), codec="zstd", asbytes=True))
    for ignoring in ("false", "true"):
        declared.options["json.ignore-parse-errors"] = ignoring  # type: ignore[index]
        for file in (plain, packed, zstd):
            found = rows(con, declared, file)
            assert [(*r[:2], r[2] and r[2].astimezone(UTC), r[3]) for r in found] == expected


FITTING = ["{}", "null", '{"a": 1.0}', '{"s": {"x": 1, "z": 2}, "l": [1, null], "m": {"k": null}}', '{"s": null}']
HINT = (
    "Set 'json.ignore-parse-errors' = 'true' to skip such rows and count them,"
    " 'json.errors-to' = 'name' to keep them in a table."
)
MALFORMED = [
    ("garbage", "The line is not a JSON object"),
    ('{"a": 1', "The line is not a JSON object"),
    ('{"a": 1} {"a": 2}', "The line is not a JSON object"),
    ("[1]", "The line is not a JSON object"),
    ("5", "The line is not a JSON object"),
    ('{"a": "x"}', 'Column "a" does not hold a BIGINT'),
    ('{"a": 9223372036854775808}', 'Column "a" does not hold a BIGINT'),
    ('{"a": {"b": 1}}', 'Column "a" does not hold a BIGINT'),
    ('{"a": 1.5}', 'Column "a" does not hold a BIGINT'),
    ('{"a": -1e-3}', 'Column "a" does not hold a BIGINT'),
    ('{"a": true}', 'Column "a" does not hold a BIGINT'),
    ('{"a": "1.5"}', 'Column "a" does not hold a BIGINT'),
    ('{"a": "15e-1"}', 'Column "a" does not hold a BIGINT'),
    ('{"s": {"x": 1.5}}', f'Column "s" does not hold a {NESTED["s"]}'),
    ('{"s": {"x": false}}', f'Column "s" does not hold a {NESTED["s"]}'),
    ('{"m": {"j": 1, "k": 1.5}}', 'Column "m" does not hold a MAP(VARCHAR, INTEGER)'),
    ('{"i": [[1], [2, 2.5]]}', 'Column "i" does not hold a INTEGER[][]'),
    ('{"s": 5}', f'Column "s" does not hold a {NESTED["s"]}'),
    ('{"s": {"x": "q"}}', f'Column "s" does not hold a {NESTED["s"]}'),
    ('{"a": 1, "s": {"x": "q"}}', f'Column "s" does not hold a {NESTED["s"]}'),
    ('{"s": {"y": 1}}', f'Column "s" does not hold a {NESTED["s"]}'),
    ('{"l": [1, "q"]}', 'Column "l" does not hold a DOUBLE[]'),
    ('{"l": {}}', 'Column "l" does not hold a DOUBLE[]'),
    ('{"m": {"k": "q"}}', 'Column "m" does not hold a MAP(VARCHAR, INTEGER)'),
]


@pytest.mark.parametrize(("line", "reason"), MALFORMED)
def test_malformed_json_fails_with_its_line(con: Con, tmp_path: Path, line: str, reason: str) -> None:
    before = "\n".join(FITTING)
    file = write(tmp_path / "a.json", f'{before}\n\n{line}\n{{"a": 3}}\n{line}\n')
    error = failure(con, table("json", NESTED), file)
    assert error.message == f'line {len(FITTING) + 2} of file "{file.path}" of table "t" is malformed'
    assert error.detail == f"{reason}: {line}"
    assert error.hint == HINT


def test_the_file_at_fault_is_named_among_similar_names(con: Con, tmp_path: Path) -> None:
    good = write(tmp_path / "a.json", '{"a": 1}')
    bad = write(tmp_path / "a.json.gz", gzip.compress(b'{"a": 1}\n{"a": "x"}'))
    error = failure(con, table("json", {"a": "BIGINT"}), good, bad)
    assert error.message == f'line 2 of file "{bad.path}" of table "t" is malformed'


def test_malformed_json_is_skipped_and_counted(con: Con, tmp_path: Path) -> None:
    lines = [line for pair in zip(FITTING, [m for m, _ in MALFORMED], strict=False) for line in pair]
    lines += [m for m, _ in MALFORMED[len(FITTING) :]]
    first = write(tmp_path / "a.json", "\n".join(lines))
    second = write(tmp_path / "b.json.gz", gzip.compress(b'{"a": 7}\nx\n'))
    strict = table("json", NESTED)
    expected = rows(con, strict, write(tmp_path / "c.json", "\n".join([*FITTING, '{"a": 7}'])))
    found, skipped = skipping(con, table("json", NESTED, ignore_parse_errors="true"), first, second)
    assert found == expected
    assert skipped == len(MALFORMED) + 1


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("TIMESTAMP", "1700000000"),
        ("TIMESTAMP", '"nope"'),
        ("TIMESTAMP WITH TIME ZONE", "5"),
        ("DATE", "5"),
        ("DECIMAL(4,2)", "123.5"),
        ("BOOLEAN", '"maybe"'),
        ("BOOLEAN", "2"),
        ("BOOLEAN", "1.5"),
        ("TINYINT", "300"),
        ("DOUBLE", '"1,5"'),
    ],
)
def test_json_scalars_of_another_type(con: Con, tmp_path: Path, declared: str, value: str) -> None:
    file = write(tmp_path / "a.json", f'{{"a": null}}\n{{"a": {value}}}\n')
    error = failure(con, table("json", {"a": declared}), file)
    assert error.message.startswith("line 2 of file")
    assert error.detail == f'Column "a" does not hold a {declared}: {{"a": {value}}}'
    assert skipping(con, table("json", {"a": declared}, ignore_parse_errors="true"), file) == ([(None,)], 1)


@pytest.mark.parametrize("ignore", ["true", "false"])
def test_whole_numbers_however_they_are_written(con: Con, tmp_path: Path, ignore: str) -> None:
    values = ["12", "12.0", "1.2e1", "120e-1", '"12"', '"12.0"', '"1.2e1"']
    columns = {"a": "BIGINT", "s": "STRUCT(x UTINYINT)"}
    text = "".join(f'{{"a": {v}, "s": {{"x": {v}}}}}\n' for v in values)
    declared = table("json", columns, ignore_parse_errors=ignore)
    assert rows(con, declared, write(tmp_path / "a.json", text)) == [(12, {"x": 12})] * len(values)
    declared = table("csv", {"a": "BIGINT", "b": "HUGEINT"}, ignore_parse_errors=ignore)
    text = "".join(f"{v},-170141183460469231731687303715884105728\n" for v in values)
    assert rows(con, declared, write(tmp_path / "a.csv", text)) == [(12, -(2**127))] * len(values)


def test_what_else_json_values_become(con: Con, tmp_path: Path) -> None:
    columns = {"d": "DOUBLE", "m": "DECIMAL(6,2)", "b": "BOOLEAN", "s": "VARCHAR", "t": "TIMESTAMP"}
    text = '{"d": true, "m": 1.235, "b": 1, "s": 1.5, "t": "2026-01-01 10:00:00.9999999"}\n'
    expected = (1.0, Decimal("1.24"), True, "1.5", datetime(2026, 1, 1, 10, 0, 0, 999999))
    for ignore in ("true", "false"):
        declared = table("json", columns, ignore_parse_errors=ignore)
        assert rows(con, declared, write(tmp_path / "a.json", text)) == [expected]


def test_a_line_that_is_not_whole_yet(con: Con, tmp_path: Path) -> None:
    hint = (
        "The file may not be complete yet."
        " Write files under a name that starts with a dot and rename them when they are complete."
    )
    error = failure(con, table("json", {"a": "BIGINT"}), write(tmp_path / "a.json", '{"a": 1}\n{"a": 2, "b'))
    assert error.hint == hint
    error = failure(con, table("csv", {"a": "BIGINT", "b": "BIGINT"}), write(tmp_path / "a.csv", "1,2\n3"))
    assert error.hint == hint


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_json_lines_that_are_too_long(con: Con, tmp_path: Path, name: str) -> None:
    text = '{"a": 1}\n\n{"a": 2, "s": "' + "x" * (34 << 20) + '"}\n{"a": 3}\nx\n'
    file = write(tmp_path / name, gzip.compress(text.encode(), 1) if name.endswith("gz") else text)
    error = failure(con, table("json", {"a": "BIGINT"}), file)
    assert error.message == f'line 3 of file "{file.path}" of table "t" is malformed'
    assert (error.detail or "").startswith('The line is longer than 32 MB: {"a": 2, "s": "xxx')
    ignoring = table("json", {"a": "BIGINT"}, ignore_parse_errors="true")
    assert skipping(con, ignoring, file) == ([(1,), (3,)], 2)
    found = [(row.number, row.reason, min(len(row.text), 99)) for row in malformed_rows([file], ignoring)]
    assert found == [(3, "The line is longer than 32 MB", 99), (5, "The line is not a JSON object", 1)]


def test_a_twice_given_json_key_fails_with_duckdbs_reason(con: Con, tmp_path: Path) -> None:
    file = write(tmp_path / "a.json", '{"a": 1, "a": 2}\n')
    error = failure(con, table("json", {"a": "BIGINT"}), file)
    assert error.message == f'file "{file.path}" of table "t" has a malformed row'
    assert 'has duplicate key "a"' in (error.detail or "")


WRONG_KEYS = [
    ("MAP(INTEGER, INTEGER)", '{"a": 10}'),
    ("MAP(INTEGER, INTEGER)", '{"1.5": 10}'),
    ("MAP(INTEGER, INTEGER)", '{"1": 1, "1": 2}'),
    ("MAP(INTEGER, INTEGER)", '{"1": 1, "01": 2}'),
    ("MAP(VARCHAR, INTEGER)", '{"x": 1, "x": 2}'),
    ("MAP(VARCHAR, VARCHAR)", '{"x": 1, "x": 1}'),
    ("MAP(DATE, VARCHAR)", '{"2026-13-01": "x"}'),
    ("MAP(BOOLEAN, INTEGER)", '{"true": 1, "1": 2}'),
    ("MAP(DOUBLE, DOUBLE)", '{"1.0": 1, "1": 2}'),
    ("MAP(VARCHAR, MAP(INTEGER, INTEGER))", '{"x": {"a": 1}}'),
]


@pytest.mark.parametrize(("map_", "value"), WRONG_KEYS)
@pytest.mark.parametrize(
    ("declared", "text"),
    [("{}", "{}"), ("{}[]", "[{}]"), ("STRUCT(m {})", '{{"m": {}}}'), ("MAP(VARCHAR, {})", '{{"n": {}}}')],
)
def test_keys_of_a_map_that_do_not_fit_are_malformed(
    con: Con, tmp_path: Path, map_: str, value: str, declared: str, text: str
) -> None:
    line = f'{{"a": {text.format(value)}}}'
    file = write(tmp_path / "a.json", f'{{"a": null}}\n{line}\n')
    declaration = table("json", {"a": declared.format(map_)})
    error = failure(con, declaration, file)
    assert error.message == f'line 2 of file "{file.path}" of table "t" is malformed'
    assert error.detail == f'Column "a" does not hold a {declaration.columns[0].type}: {line}'
    ignoring = table("json", {"a": declared.format(map_)}, ignore_parse_errors="true")
    assert skipping(con, ignoring, file) == ([(None,)], 1)


@pytest.mark.parametrize("ignoring", ["false", "true"])
def test_keys_of_a_map_are_what_their_texts_say(con: Con, tmp_path: Path, ignoring: str) -> None:
    declared = table("json", {"m": "MAP(INTEGER, INTEGER)", "d": "MAP(DATE, VARCHAR)"}, ignore_parse_errors=ignoring)
    file = write(tmp_path / "a.json", '{"m": {"01": 1, "2": "2"}, "d": {"2026-01-02": "x"}}\n{"m": {}, "d": null}\n')
    assert rows(con, declared, file) == [({1: 1, 2: 2}, {date(2026, 1, 2): "x"}), ({}, None)]


DOCUMENTS = [
    ('"{\\"a\\": 1}"', '{"a": 1}'),
    ('" [1]"', " [1]"),
    ('{"a": "{}"}', '{"a":"{}"}'),
    ('"abc"', '"abc"'),
    ('"5"', '"5"'),
    ('"{bad"', '"{bad"'),
    ('""', '""'),
    ("5", "5"),
    ("[true]", "[true]"),
    ("null", None),
]


@pytest.mark.parametrize("ignoring", ["false", "true"])
@pytest.mark.parametrize(("value", "expected"), DOCUMENTS)
def test_a_string_that_holds_a_document_is_that_document(
    con: Con, tmp_path: Path, value: str, expected: str | None, ignoring: str
) -> None:
    types = {"j": "JSON", "l": "JSON[]", "s": 'STRUCT("a b" JSON, n INTEGER)', "m": "MAP(VARCHAR, JSON)"}
    declared = table("json", types, ignore_parse_errors=ignoring)
    nested = f'"l": [{value}], "s": {{"a b": {value}, "n": 1}}, "m": {{"k": {value}}}'
    file = write(tmp_path / "a.json", f'{{"j": {value}, {nested}}}\n{{"s": null}}\n')
    found = rows(con, declared, file)
    assert found == [(expected, [expected], {"a b": expected, "n": 1}, {"k": expected}), (None,) * 4]
