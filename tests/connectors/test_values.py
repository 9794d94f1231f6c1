"""Formats over values, as a queue hands them out: rows, changes, metadata, and what becomes of malformed ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from sqlstream.catalog import Column, Table
from sqlstream.connectors.discovery import Discovery, DiscoveryContext
from sqlstream.connectors.formats.changelogs import changes_of, source_table
from sqlstream.connectors.formats.csv_rows import fields_of
from sqlstream.connectors.formats.value_source import NUMBER, PLACE, ValueRows
from sqlstream.connectors.guarantees import Replay
from sqlstream.connectors.interface import ReadContext
from sqlstream.connectors.read_plan import VALUE
from sqlstream.errors import DataError

WHERE = ReadContext("", "")


class Messages(ValueRows):
    """Messages of one partition; a split is a list of them."""

    replay = Replay.REPLAYABLE
    replay_reason = "messages are read again"
    rewinds = True
    slot: str | None = None

    def discovery(self, position: Any, context: DiscoveryContext) -> Discovery:
        raise NotImplementedError

    def values(self, splits: Sequence[Any]) -> pa.Table:
        texts = [text for split in splits for text in split]
        kind = pa.binary() if any(isinstance(t, bytes) for t in texts) else pa.string()
        numbers = list(range(100, 100 + len(texts)))
        return pa.table(
            {
                VALUE: pa.array(texts, kind),
                PLACE: pa.array(["partition 3"] * len(texts)),
                NUMBER: pa.array(numbers),
                "offset": pa.array(numbers),
            }
        )


def table(columns: Mapping[str, str], format: str = "json", **options: str) -> Table:
    found = tuple(Column(name, type) for name, type in columns.items())
    return Table("t", (*found, Column("pos", "BIGINT", metadata="offset")), options={"format": format, **options})


def rows(declared: Table, *values: bytes | str | None) -> list[tuple[Any, ...]]:
    with duckdb.connect() as con:
        plan = Messages(declared).take(con, [list(values)], WHERE)
        return con.execute(f"SELECT * FROM {plan.well_formed} ORDER BY pos").fetchall()


@pytest.mark.parametrize("encode", [str, str.encode])
def test_json(encode: Any) -> None:
    declared = table({"value": "BIGINT", "s": "STRUCT(a INTEGER[])"})
    found = rows(declared, encode('{"value": 1, "more": 2}'), encode('{"s": {"a": [1, 2]}}'), None, encode("null"))
    assert found == [(1, None, 100), (None, {"a": [1, 2]}, 101), (None, None, 103)]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('{"k": 1.5}', 'Column "k" does not hold a BIGINT: {"k": 1.5}'),
        ("[1]", "The value is not a JSON object: [1]"),
        ('{"k": 1', 'The value is not a JSON object: {"k": 1'),
    ],
)
def test_a_malformed_value_is_named_or_skipped(value: str, reason: str) -> None:
    declared = table({"k": "BIGINT"})
    source, split = Messages(declared), ['{"k": 1}', value]
    with duckdb.connect() as con, pytest.raises(duckdb.Error) as raised:
        con.execute(f"SELECT * FROM {source.read(con, [split], WHERE).relation}").fetchall()
    error = source.explained(raised.value, [split])
    assert isinstance(error, DataError)
    assert error.message == 'the value at offset 101 of partition 3 of table "t" is malformed'
    assert (error.detail or "").rstrip(".") == reason
    assert error.hint is not None
    assert "json.ignore-parse-errors" in error.hint
    skipping = table({"k": "BIGINT"}, **{"json.ignore-parse-errors": "true"})
    assert rows(skipping, *split) == [(1, 100)]
    with duckdb.connect() as con:
        plan = Messages(skipping).take(con, [split], WHERE)
        assert plan.skipped(con) == 1
    assert [(r.path, r.number, r.text) for r in Messages(skipping).malformed_rows([split])] == [
        ("partition 3", 101, value)
    ]


def test_bytes_that_are_no_text_are_malformed() -> None:
    declared = table({"k": "BIGINT"}, **{"json.ignore-parse-errors": "true"})
    assert rows(declared, b'{"k": 1}', b'{"k": "\xff"}') == [(1, 100)]


def test_csv() -> None:
    declared = table({"k": "BIGINT", "s": "VARCHAR"}, "csv", **{"csv.ignore-parse-errors": "true"})
    found = rows(declared, '1,"a, ""b"""', '2,""', "3,", "4", "x,y", "1.5,z", '5,"open')
    assert found == [(1, 'a, "b"', 100), (2, "", 101), (3, None, 102)]
    reasons = [r.reason for r in Messages(declared).malformed_rows([["4", "x,y", "1.5,z", '5,"open']])]
    assert reasons == [
        "The row has fewer than 2 fields",
        'Column "k" does not hold a BIGINT',
        'Column "k" does not hold a BIGINT',
        "A quote is not closed, or stands within a field",
    ]


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("", {}, [None]),
        (",", {}, [None, None]),
        ("a;b", {"csv.field-delimiter": ";"}, ["a", "b"]),
        ("a\tb", {"csv.field-delimiter": "\\t"}, ["a", "b"]),
        ("'a\\'b',c", {"csv.quote-character": "'", "csv.escape-character": "\\"}, ["a'b", "c"]),
        ('a"b,"c"', {}, ['a"b', "c"]),
        ('"a"b', {}, None),
        ('"a",n/a', {"csv.null-literal": "n/a"}, ["a", None]),
        ('"a', {"csv.quote-character": ""}, ['"a']),
    ],
)
def test_fields_of_a_record(text: str, options: dict[str, str], expected: list[str | None] | None) -> None:
    assert fields_of(text, options) == expected


def test_changes_in_envelopes() -> None:
    declared = replace(table({"id": "BIGINT", "n": "VARCHAR"}, "debezium-json"), primary_key=("id",))
    envelopes = [
        '{"op": "c", "after": {"id": 1, "n": "a"}}',
        '{"op": "u", "before": {"id": 1, "n": "a"}, "after": {"id": 1, "n": "b"}}',
        None,
        '{"op": "d", "before": {"id": 1}}',
    ]
    read = source_table(declared)
    with duckdb.connect() as con:
        relation = Messages(read).take(con, [envelopes], WHERE).well_formed
        changes = con.execute(
            f"SELECT id, n, pos, __sqlstream_row, __sqlstream_change FROM ({changes_of(declared, relation)})"
        )
        assert sorted(changes.fetchall(), key=lambda row: int(row[3])) == [
            (1, "a", 100, 200, "I"),
            (1, "a", 101, 202, "B"),
            (1, "b", 101, 203, "U"),
            (1, None, 103, 206, "D"),
        ]


def test_rows_have_numbers_by_which_they_are_found() -> None:
    declared = table({"k": "BIGINT"}, **{"json.ignore-parse-errors": "true"})
    with duckdb.connect() as con:
        numbered = Messages(declared).numbered(con, ['{"k": 1}', "x", '{"k": 3}'])
        counts = [
            n
            for (n,) in con.execute(
                f"SELECT __sqlstream_row + 1 FROM {numbered.plan.well_formed} ORDER BY 1"
            ).fetchall()
        ]
        assert counts == [101, 103]
        assert numbered.places([103])[103].text == '{"k": 3}'
