"""Finds the faults in the JSON of an Avro schema, and describes them for its author."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

# The most characters of a schema in a message.
_SHOWN = 200
_FIXED, _ENUM = "fixed", "enum"


def schema_fault(schema: Any) -> str | None:
    """Return the first fault of a schema, which is parsed JSON, as a sentence; None if it has none.

    Named types need not exist: other schemas may define them.

    >>> schema_fault({"type": "record", "name": "r", "fields": [{"nam": "k", "type": "long"}]})
    'A field of the record "r" has no name: {"nam": "k", "type": "long"}.'
    >>> schema_fault({"type": "array"})
    'An array has no "items": {"type": "array"}.'
    """
    return next(_faults(schema), None)


def _faults(schema: Any) -> Iterator[str]:
    match schema:
        case str():
            return
        case list():
            for option in schema:
                yield from _faults(option)
        case {"type": "record" | "error", "fields": list(fields)}:
            for field in fields:
                yield from _faults_of_field(schema.get("name"), field)
            names = [field["name"] for field in fields]
            for name in sorted({name for name in names if names.count(name) > 1}):
                yield f'A record has two fields "{name}": {_shown(schema)}.'
        case {"type": "record" | "error"}:
            yield f'A record has no "fields": {_shown(schema)}.'
        case {"type": "array", "items": inner} | {"type": "map", "values": inner}:
            yield from _faults(inner)
        case {"type": "array"}:
            yield f'An array has no "items": {_shown(schema)}.'
        case {"type": "map"}:
            yield f'A map has no "values": {_shown(schema)}.'
        case {"type": str() | dict() | list() as inner}:
            yield from _faults(inner)
        case _:
            yield f"This is no type: {_shown(schema)}."
    if isinstance(schema, dict) and "type" in schema:
        yield from _faults_of_names(schema)


def _faults_of_field(record: Any, field: Any) -> Iterator[str]:
    named = f'of the record "{record}"' if isinstance(record, str) else "of a record"
    match field:
        case {"name": str(), "type": inner}:
            yield from _faults(inner)
            if not _are_texts(field.get("aliases", [])):
                yield f'The "aliases" of a field {named} are no list of texts: {_shown(field)}.'
        case {"name": str()}:
            yield f"A field {named} has no type: {_shown(field)}."
        case _:
            yield f"A field {named} has no name: {_shown(field)}."


def _faults_of_names(schema: dict[str, Any]) -> Iterator[str]:
    """Yield the faults of a type's attributes, apart from types within it."""
    for attribute in ("name", "namespace", "logicalType"):
        if not isinstance(schema.get(attribute, ""), str):
            yield f'The "{attribute}" of a type is no text: {_shown(schema)}.'
    if schema.get("logicalType") == "decimal" and schema["type"] in ("bytes", _FIXED):
        if not _is_count(schema.get("precision")):
            yield f'A decimal has no "precision" that is a whole number: {_shown(schema)}.'
        if not _is_count(schema.get("scale", 0)):
            yield f'The "scale" of a decimal is no whole number: {_shown(schema)}.'
    if schema["type"] in (_ENUM, _FIXED) and not schema.get("name"):
        yield f"A type {schema['type']} has no name: {_shown(schema)}."
    if schema["type"] == _ENUM and not _are_texts(schema.get("symbols")):
        yield f'An enum has no list of "symbols": {_shown(schema)}.'
    if schema["type"] == _FIXED and not _is_count(schema.get("size")):
        yield f'A fixed has no "size" in bytes: {_shown(schema)}.'


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _shown(schema: Any) -> str:
    text = json.dumps(schema, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}.."
