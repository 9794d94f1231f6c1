"""Schemas that are none of Avro's, or of no use: an error in words, whatever their JSON is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from sqlstream.connectors.formats.avro.schema_faults import schema_fault
from sqlstream.connectors.formats.avro.schemas import AvroSchema
from sqlstream.errors import DataError, SqlStreamError, UnsupportedError
from tests.connectors.formats.test_avro import field, record

# All types, some of them nested.
NESTED = record(
    field("k", "long"),
    field("s", ["null", "string"], aliases=["t"], default=None),
    field("d", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
    field("e", {"type": "enum", "name": "E", "symbols": ["A"]}),
    field("f", {"type": "fixed", "name": "F", "size": 4}),
    field("a", {"type": "array", "items": {"type": "map", "values": "int"}}),
    field(
        "r", {"type": "record", "name": "g", "fields": record(field("x", "E"), field("y", ["null", "int"]))["fields"]}
    ),
)
VALUES: tuple[Any, ...] = (None, 0, 1, 99, -3, 1.5, True, "", "x", "record", "fixed", [], {}, [1], {"type": "record"})


@pytest.mark.parametrize(
    ("type", "fault"),
    [
        ({"type": "array"}, 'An array has no "items"'),
        ({"type": "map", "value": "int"}, 'A map has no "values"'),
        ({"type": "record", "name": "g"}, 'A record has no "fields"'),
        ({"type": "record", "name": "g", "fields": [{"name": "x"}]}, 'A field of the record "g" has no type'),
        ({"type": "record", "name": "g", "fields": [{"name": "x", "type": "int"}] * 2}, 'A record has two fields "x"'),
        ({"type": "enum", "name": "E"}, 'An enum has no list of "symbols"'),
        ({"type": "fixed", "size": 3}, "A type fixed has no name"),
        ({"type": "fixed", "name": "F", "size": "3"}, 'A fixed has no "size"'),
        ({"type": "bytes", "logicalType": "decimal"}, 'A decimal has no "precision"'),
        ({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": "x"}, 'The "scale" of a decimal'),
        (["null", 3], "This is no type: 3."),
        ({"typ": "int"}, 'This is no type: {"typ": "int"}.'),
        ({"type": "int", "logicalType": 3}, 'The "logicalType" of a type is no text'),
    ],
)
def test_a_fault_of_a_type_is_said(type: Any, fault: str) -> None:
    schema = AvroSchema(json.dumps(record(field("k", ["null", type]))), 'the schema of table "t"')
    with pytest.raises(DataError, match='the schema of table "t" is no Avro schema') as raised:
        _ = schema.arrow
    assert str(raised.value.detail).startswith(fault)


def test_a_schema_without_an_end_is_refused() -> None:
    deep = '{"type": "array", "items": ' * 5000 + '"int"' + "}" * 5000
    text = json.dumps(record(field("k", "X"))).replace('"X"', deep)
    with pytest.raises(DataError) as raised:
        _ = AvroSchema(text, "the schema").record
    assert raised.value.detail == "Its types are nested too deeply."


def test_a_record_without_fields_has_no_columns() -> None:
    with pytest.raises(UnsupportedError, match="a record without fields"):
        AvroSchema(json.dumps(record()), "the schema").columns()


@pytest.mark.slow
def test_schemas_damaged_at_random_are_read_or_refused_in_words() -> None:
    assert schema_fault(NESTED) is None
    for seed in range(2000):
        text = json.dumps(_damaged(Random(seed)))
        schema = AvroSchema(text, "the schema")
        try:
            _ = schema.arrow, schema.parsed, schema.readable, schema.full_name, schema.is_plain(), schema.columns()
        except SqlStreamError as error:
            check_words(error, text)


def check_words(error: SqlStreamError, schema: str) -> None:
    assert "Error" not in f"{error.message}\n{error.detail}", schema


def _damaged(random: Random) -> Any:
    """Return the schema with one thing in it gone, renamed or replaced, sometimes two."""
    schema = json.loads(json.dumps(NESTED))
    for _ in range(random.choice((1, 1, 2))):
        holder, key = random.choice(list(_places(schema)))
        match random.randrange(4):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[f"{key}x"] = holder.pop(key)
            case _:
                holder[key] = random.choice(VALUES)
    return schema


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every key of a dictionary and every index of a list, with what it is in."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])
