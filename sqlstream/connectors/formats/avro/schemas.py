"""Avro schemas: which types they have here, and what the one says that a table gives."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.avro.schema_faults import schema_fault
from sqlstream.duck import databases
from sqlstream.errors import DataError, UnsupportedError

# A schema as JSON has it.
Avro = Any

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time64("us"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
}


@dataclass(frozen=True)
class AvroSchema:
    """The schema of a record: as it is written, with what it refers to, and what messages call it."""

    text: str
    name: str
    references: tuple[tuple[str, str], ...] = ()
    _seen: dict[str, Avro] = field(default_factory=dict, compare=False, hash=False)

    @cached_property
    def record(self) -> Mapping[str, Any]:
        """The record. Raises DataError for what is none."""
        for _, text in self.references:
            self._note(self._parsed(text))
        found = self._parsed(self.text)
        self._note(found)
        if not isinstance(found, dict) or found.get("type") != "record":
            raise DataError(f"{self.name} is no record", detail=f"It is: {self.text}.")
        return found

    @cached_property
    def parsed(self) -> Any:
        """The schema as fastavro takes it."""
        import fastavro

        named: dict[str, Any] = {}
        try:
            for _, text in self.references:
                fastavro.parse_schema(json.loads(text), named)
            return fastavro.parse_schema(dict(self.record), named)
        except Exception as error:
            raise DataError(f"{self.name} is no Avro schema", detail=f"{error}.") from error

    @property
    def full_name(self) -> str:
        """The name of the record, with its namespace."""
        name, namespace = self.record.get("name", ""), self.record.get("namespace")
        return f"{namespace}.{name}" if namespace and "." not in name else name

    @cached_property
    def arrow(self) -> pa.Schema:
        """The fields that Arrow has a type for."""
        found = ((f["name"], self._arrow(f["type"], ())) for f in self.record["fields"])
        return pa.schema([pa.field(name, type_) for name, type_ in found if type_ is not None])

    def columns(self) -> list[Column]:
        """Return the columns of a table that declares none.

        Raises UnsupportedError for a field that has no type here, and where there is no field.
        """
        if not self.record["fields"]:
            raise UnsupportedError(f"{self.name}: a record without fields")
        for found in self.record["fields"]:
            if found["name"] not in self.arrow.names:
                hint = "Declare the columns of the table, without this one."
                raise UnsupportedError(
                    f'field "{found["name"]}" of {self.name}: {json.dumps(found["type"])}', hint=hint
                )
        with databases.passing() as con:
            con.register("_schema", self.arrow.empty_table())
            types = con.sql("FROM _schema").types
            return [Column(name, str(type_)) for name, type_ in zip(self.arrow.names, types, strict=True)]

    def is_plain(self) -> bool:
        """Whether polars reads it: no map, no named type that is used twice, no union but with null, few inside of others."""
        return not self.references and all(self._is_plain(f["type"], outermost=True) for f in self.record["fields"])

    # -- inside of a schema

    def _parsed(self, text: str) -> Avro:
        """Return the JSON of a schema. Raises DataError for what is none of Avro's."""
        message = f"{self.name} is no Avro schema"
        try:
            found = json.loads(text)
            fault = schema_fault(found)
        except ValueError as error:
            raise DataError(message, detail=f"It is no JSON: {error}.") from None
        except RecursionError:
            raise DataError(message, detail="Its types are nested too deeply.") from None
        if fault is not None:
            raise DataError(message, detail=fault)
        return found

    def _note(self, found: Avro, space: str = "") -> None:
        """Remember the named types of a schema."""
        for inner, own in _named(found, space):
            self._seen[own] = inner
            self._seen.setdefault(own.rpartition(".")[2], inner)

    def _arrow(self, found: Avro, inside: tuple[int, ...]) -> pa.DataType | None:
        """Return the type of values, None where there is none: of unions, recursive types, and too long decimals."""
        if isinstance(found, list):
            [*rest] = [option for option in found if option != "null"]
            return self._arrow(rest[0], inside) if len(rest) == 1 else None
        if isinstance(found, str):
            if found in _PRIMITIVES:
                return _PRIMITIVES[found]
            known = self._seen.get(found)
            return None if known is None else self._arrow(known, inside)
        logical = found.get("logicalType")
        if logical == "decimal" and found.get("precision", 0) <= 38:
            return pa.decimal128(found["precision"], found.get("scale", 0))
        if logical in _LOGICAL and found["type"] in ("int", "long", "string"):
            return _LOGICAL[logical]
        match found["type"]:
            case "array":
                item = self._arrow(found["items"], inside)
                return item and pa.list_(item)
            case "map":
                value = self._arrow(found["values"], inside)
                return value and pa.map_(pa.string(), value)
            case "record":
                if id(found) in inside:
                    return None
                fields = [(f["name"], self._arrow(f["type"], (*inside, id(found)))) for f in found["fields"]]
                is_whole = fields and all(type_ is not None for _, type_ in fields)
                return pa.struct([pa.field(n, t) for n, t in fields]) if is_whole else None
            case "enum":
                return pa.string()
            case "fixed":
                return pa.binary()
        return self._arrow(found["type"], inside)

    def _is_plain(self, found: Avro, *, outermost: bool = False, nullable: bool = False) -> bool:
        if isinstance(found, list):
            rest = [option for option in found if option != "null"]
            return len(found) == 2 and len(rest) == 1 and self._is_plain(rest[0], outermost=outermost, nullable=True)
        if isinstance(found, str):
            return found in _PRIMITIVES and found != "null"
        logical = found.get("logicalType", "")
        if logical.startswith("time-"):
            return outermost
        match found["type"]:
            case "array":
                return self._is_plain(found["items"])
            case "record":
                return bool(found["fields"]) and all(self._is_plain(f["type"]) for f in found["fields"])
            case "enum":
                return outermost and not nullable
            case "map":
                return False
            case "fixed":
                return True
        return self._is_plain(found["type"], outermost=outermost, nullable=nullable)


def _named(found: Avro, space: str) -> Iterator[tuple[Avro, str]]:
    match found:
        case list():
            for option in found:
                yield from _named(option, space)
        case {"type": "record" | "enum" | "fixed", "name": str(name)}:
            space = found.get("namespace", name.rpartition(".")[0] or space)
            yield found, name if "." in name or not space else f"{space}.{name}"
            for inner in found.get("fields", ()):
                yield from _named(inner["type"], space)
        case {"type": "array", "items": inner} | {"type": "map", "values": inner}:
            yield from _named(inner, space)
        case {"type": dict() | list() as inner}:
            yield from _named(inner, space)


def given_schema(table: Table, format: str) -> AvroSchema | None:
    """Return the schema that a table gives in its options."""
    text = table.options.get(f"{format}.schema")
    return None if text is None else AvroSchema(text, f'the schema of table "{table.name}"')


def defaults_of(schema: AvroSchema | None) -> Mapping[str, Any]:
    """Return what the fields of a reader's schema are where a writer's has none of them, by their names in small letters."""
    fields = schema.record["fields"] if schema else ()
    return {f["name"].lower(): f["default"] for f in fields if "default" in f}


def aliases_of(schema: AvroSchema | None) -> Mapping[str, Sequence[str]]:
    """Return the names that fields of a reader's schema had before, by their names in small letters."""
    fields = schema.record["fields"] if schema else ()
    return {f["name"].lower(): [alias.lower() for alias in f.get("aliases", ())] for f in fields}
