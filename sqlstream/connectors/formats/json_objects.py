"""Rows as JSON objects: the SQL that encodes them, so that no row passes through Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlstream.catalog import DEBEZIUM, Column
from sqlstream.connectors.formats.json_options import iso_time, writes_iso
from sqlstream.duck.sql import quote_name


def json_object(fields: Sequence[tuple[str, Column]], options: Mapping[str, str]) -> str:
    """Return the SQL of the text of a JSON object with (name in the object, column) of its fields.

    `options` are those of the format, without a prefix `key.` or `value.`.
    """
    if not fields:
        return "'{}'"
    iso = any(writes_iso(options, form) for form in ("json", DEBEZIUM))
    items = ", ".join(f"{quote_name(name)} := {_json_value(column, iso=iso)}" for name, column in fields)
    return f"CAST(to_json(struct_pack({items})) AS VARCHAR)"


def _json_value(column: Column, *, iso: bool) -> str:
    value = quote_name(column.name)
    if iso and (time := iso_time(column)) is not None:
        return time
    if column.type in ("DOUBLE", "FLOAT"):
        # JSON has no numbers for NaN and infinities.
        return f"if(isfinite({value}), to_json({value}), to_json(CAST({value} AS VARCHAR)))"
    return value
