"""Avro schemas: their types in Arrow and SQL, and the schema in a table's options."""

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

# A schema as parsed JSON.
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
# By the type below and the logical type.
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time64("us"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("string", "uuid"): pa.string(),
}
# The most digits of a decimal.
_DIGITS = 38
# The prefix of logical types for fastavro, whose own readers fail for some values, such as times after the year 9999.
OWN = "sqlstream-"


@dataclass(frozen=True)
class AvroSchema:
    """The schema of a record: its JSON as `text`, and its `name` in messages.

    `references` has (name, JSON) of the schemas that it refers to, each after the schemas that it needs itself.
    """

    text: str
    name: str
    references: tuple[tuple[str, str], ...] = ()
    _seen: dict[str, Avro] = field(default_factory=dict, compare=False, hash=False)

    @cached_property
    def record(self) -> Mapping[str, Any]:
        """The schema as parsed JSON. Raises DataError if it is no Avro schema, or no record."""
        for _, text in self.references:
            self._note(self._parsed(text))
        record = self._parsed(self.text)
        self._note(record)
        if not isinstance(record, dict) or record.get("type") != "record":
            raise DataError(f"{self.name} is no record", detail=f"It is: {self.text}.")
        return record

    @cached_property
    def parsed(self) -> Any:
        """The schema as fastavro parses it, with its references. Raises DataError if fastavro rejects it."""
        return self._parsed_by_fastavro(self.record, [json.loads(text) for _, text in self.references])

    @cached_property
    def readable(self) -> Any:
        """The schema that fastavro decodes with: `for_reading(OWN)` and its references. Raises DataError like `parsed`."""
        record = self.for_reading(OWN)
        return self._parsed_by_fastavro(record, [_for_reading(json.loads(text), OWN) for _, text in self.references])

    def for_reading(self, prefix: str = "") -> Mapping[str, Any]:
        """Return the record for reading: without defaults, and without the logical types that are read as the types below them.

        The names of the remaining logical types get `prefix`. Without a prefix, times lose their logical type, too, because
        polars changes times outside of a day.
        """
        schema: Mapping[str, Any] = _for_reading(self.record, prefix)
        return schema

    def _parsed_by_fastavro(self, record: Avro, references: Sequence[Avro]) -> Any:
        import fastavro

        named: dict[str, Any] = {}
        try:
            for reference in references:
                fastavro.parse_schema(reference, named)
            return fastavro.parse_schema(dict(record), named)
        except Exception as error:
            raise DataError(f"{self.name} is no Avro schema", detail=f"{error}.") from error

    @property
    def full_name(self) -> str:
        """The name of the record, with its namespace."""
        name, namespace = self.record.get("name", ""), self.record.get("namespace")
        return f"{namespace}.{name}" if namespace and "." not in name else name

    @cached_property
    def arrow(self) -> pa.Schema:
        """The record's fields as an Arrow schema, without the fields that have no type in Arrow."""
        types = ((f["name"], self._arrow(f["type"], ())) for f in self.record["fields"])
        return pa.schema([pa.field(name, type_) for name, type_ in types if type_ is not None])

    @cached_property
    def untyped(self) -> Mapping[str, str]:
        """The types, as JSON, of the fields that have no type in Arrow, by the fields' names."""
        return {f["name"]: json.dumps(f["type"]) for f in self.record["fields"] if f["name"] not in self.arrow.names}

    def columns(self) -> list[Column]:
        """Return the record's fields as columns, for a table that declares none.

        Raises UnsupportedError for a field that has no type in Arrow, and for a record without fields.
        """
        if not self.record["fields"]:
            raise UnsupportedError(f"{self.name}: a record without fields")
        for name, type_ in self.untyped.items():
            hint = "Declare the columns of the table, without this one."
            raise UnsupportedError(f'field "{name}" of {self.name}: {type_}', hint=hint)
        with databases.passing() as con:
            con.register("_schema", self.arrow.empty_table())
            types = con.sql("FROM _schema").types
            return [Column(name, str(type_)) for name, type_ in zip(self.arrow.names, types, strict=True)]

    def is_plain(self) -> bool:
        """Whether polars can decode every type of the schema.

        It cannot decode maps, references to named types, unions other than of a type and null, nullable enums, records without
        fields, and times and enums within other types.
        """
        return not self.references and all(self._is_plain(f["type"], outermost=True) for f in self.record["fields"])

    # -- inside of a schema

    def _parsed(self, text: str) -> Avro:
        """Return the parsed JSON of a schema. Raises DataError if it is no Avro schema."""
        message = f"{self.name} is no Avro schema"
        try:
            schema = json.loads(text)
            fault = schema_fault(schema)
        except ValueError as error:
            raise DataError(message, detail=f"It is no JSON: {error}.") from None
        except RecursionError:
            raise DataError(message, detail="Its types are nested too deeply.") from None
        if fault is not None:
            raise DataError(message, detail=fault)
        return schema

    def _note(self, schema: Avro, space: str = "") -> None:
        """Remember the named types of a schema."""
        for inner, own in _named(schema, space):
            self._seen[own] = inner
            self._seen.setdefault(own.rpartition(".")[2], inner)

    def _arrow(self, schema: Avro, inside: tuple[int, ...]) -> pa.DataType | None:
        """Return the type of values; None if Arrow has none, as for recursive types, and unions other than of a type and null."""
        if isinstance(schema, list):
            [*rest] = [option for option in schema if option != "null"]
            if schema and not rest:
                return pa.null()
            return self._arrow(rest[0], inside) if len(rest) == 1 else None
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _PRIMITIVES[schema]
            named_type = self._seen.get(schema)
            return None if named_type is None else self._arrow(named_type, inside)
        if (logical := _logical_type(schema)) is not None:
            return logical
        match schema["type"]:
            case "array":
                item = self._arrow(schema["items"], inside)
                return item and pa.list_(item)
            case "map":
                value = self._arrow(schema["values"], inside)
                return value and pa.map_(pa.string(), value)
            case "record":
                if id(schema) in inside:
                    return None
                fields = [(f["name"], self._arrow(f["type"], (*inside, id(schema)))) for f in schema["fields"]]
                is_whole = fields and all(type_ is not None for _, type_ in fields)
                return pa.struct([pa.field(n, t) for n, t in fields]) if is_whole else None
            case "enum":
                return pa.string()
            case "fixed":
                return pa.binary()
        return self._arrow(schema["type"], inside)

    def _is_plain(self, schema: Avro, *, outermost: bool = False, nullable: bool = False) -> bool:
        if isinstance(schema, list):
            rest = [option for option in schema if option != "null"]
            return len(schema) == 2 and len(rest) == 1 and self._is_plain(rest[0], outermost=outermost, nullable=True)
        if isinstance(schema, str):
            return schema in _PRIMITIVES and schema != "null"
        logical = _logical_type(schema)
        if logical is not None and pa.types.is_time(logical):
            return outermost
        match schema["type"]:
            case "array":
                return self._is_plain(schema["items"])
            case "record":
                return bool(schema["fields"]) and all(self._is_plain(f["type"]) for f in schema["fields"])
            case "enum":
                return outermost and not nullable
            case "map":
                return False
            case "fixed":
                return True
        return self._is_plain(schema["type"], outermost=outermost, nullable=nullable)


def _logical_type(schema: Mapping[str, Any]) -> pa.DataType | None:
    """Return the type of a logical type; None if it is not known, or does not fit the type below it.

    Avro says that such a logical type is ignored: the values are read as the type below it.

    >>> _logical_type({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2})
    Decimal128Type(decimal128(9, 2))
    >>> _logical_type({"type": "bytes", "logicalType": "decimal", "precision": 40})
    >>> _logical_type({"type": "string", "logicalType": "timestamp-millis"})
    """
    type_, logical = schema["type"], schema.get("logicalType", "")
    if logical == "decimal" and type_ in ("bytes", "fixed"):
        precision, scale = schema["precision"], schema.get("scale", 0)
        return pa.decimal128(precision, scale) if 0 < precision <= _DIGITS and scale <= precision else None
    return _LOGICAL.get((type_, logical)) if isinstance(type_, str) else None


def _for_reading(schema: Avro, prefix: str = "") -> Avro:
    """Return a schema without defaults and without the logical types that `_logical_type` ignores; the others get a prefix.

    >>> _for_reading({"type": "string", "logicalType": "date"}), _for_reading(["null", {"type": "int", "logicalType": "date"}])
    ({'type': 'string'}, ['null', {'type': 'int', 'logicalType': 'date'}])
    """
    if isinstance(schema, list):
        return [_for_reading(option, prefix) for option in schema]
    if not isinstance(schema, dict):
        return schema
    part = {key: value for key, value in schema.items() if key not in ("logicalType", "default")}
    logical = _logical_type(schema)
    if logical is not None and (prefix or not pa.types.is_time(logical)):
        part["logicalType"] = f"{prefix}{schema['logicalType']}"
    match schema["type"]:
        case "array":
            part["items"] = _for_reading(schema["items"], prefix)
        case "map":
            part["values"] = _for_reading(schema["values"], prefix)
        case "record" | "error":
            part["fields"] = [
                {
                    **{key: value for key, value in field.items() if key != "default"},
                    "type": _for_reading(field["type"], prefix),
                }
                for field in schema["fields"]
            ]
        case dict() | list() as inner:
            part["type"] = _for_reading(inner, prefix)
    return part


def _named(schema: Avro, space: str) -> Iterator[tuple[Avro, str]]:
    match schema:
        case list():
            for option in schema:
                yield from _named(option, space)
        case {"type": "record" | "enum" | "fixed", "name": str(name)}:
            space = schema.get("namespace", name.rpartition(".")[0] or space)
            yield schema, name if "." in name or not space else f"{space}.{name}"
            for inner in schema.get("fields", ()):
                yield from _named(inner["type"], space)
        case {"type": "array", "items": inner} | {"type": "map", "values": inner}:
            yield from _named(inner, space)
        case {"type": dict() | list() as inner}:
            yield from _named(inner, space)


def given_schema(table: Table, format: str) -> AvroSchema | None:
    """Return the schema in a table's options; None if there is none."""
    text = table.options.get(f"{format}.schema")
    return None if text is None else AvroSchema(text, f'the schema of table "{table.name}"')


def defaults_of(schema: AvroSchema | None) -> Mapping[str, Any]:
    """Return the defaults of a reader schema's fields, for values whose writer lacks the field, by field name in lower case."""
    fields = schema.record["fields"] if schema else ()
    return {f["name"].lower(): f["default"] for f in fields if "default" in f}


def aliases_of(schema: AvroSchema | None) -> Mapping[str, Sequence[str]]:
    """Return the aliases of a reader schema's fields by field name, all in lower case."""
    fields = schema.record["fields"] if schema else ()
    return {f["name"].lower(): [alias.lower() for alias in f.get("aliases", ())] for f in fields}
