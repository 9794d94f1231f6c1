"""Encodes rows as Protobuf messages, with the type in the table's options, its subject's newest one, or one made from columns."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.fitting import FittedColumns
from sqlstream.connectors.formats.protobuf.values import (
    CONFLUENT,
    MESSAGE_NAME,
    PROTOBUF,
    ProtobufType,
    RegisteredType,
    declared_type,
    newest_type,
    pool_of,
)
from sqlstream.connectors.formats.protobuf.written_types import file_of_columns, message_name
from sqlstream.connectors.formats.schema_registry import (
    KEY_PART,
    VALUE_PART,
    NoSchema,
    framed,
    registers,
    subject_of,
    written_id,
)
from sqlstream.errors import DataError


def check(table: Table, format: str, columns: Sequence[Column], part: str = VALUE_PART) -> None:
    """Raise BindError unless some columns can be encoded, as far as that is known without the schema registry."""
    if format == PROTOBUF:
        _fitted(table, columns, declared_type(table))


def encoder(
    table: Table, format: str, columns: Sequence[Column], part: str = VALUE_PART
) -> Callable[[pa.Table], list[bytes]]:
    """Return the function that encodes rows of some columns as messages.

    With a registry, rows get the newest schema of the subject. If the subject has none, the schema of the columns is registered.
    Raises BindError for columns that do not fit their fields, and DataError for a schema that does not exist.
    """
    if format == PROTOBUF:
        type_, head = declared_type(table), b""
    else:
        registered_type = _registered_type(table, columns, part)
        type_, index_path = registered_type.type, registered_type.index_path
        head = framed(
            registered_type.id,
            b"\0" if index_path == (0,) else b"".join(_zigzag(n) for n in (len(index_path), *index_path)),
        )
    fitted = _fitted(table, columns, type_)

    def encode(rows: pa.Table) -> list[bytes]:
        return [head + body for body in _encoded(type_, fitted.rows(rows), table, is_key=part == KEY_PART)]

    return encode


def _fitted(table: Table, columns: Sequence[Column], type: ProtobufType) -> FittedColumns:
    return FittedColumns.of(table, columns, type.handler.schema(), type.name)


def _registered_type(table: Table, columns: Sequence[Column], part: str) -> RegisteredType:
    own = message_name(table.name) + ("_key" if part == KEY_PART else "")
    name = table.options.get(f"{CONFLUENT}.{MESSAGE_NAME}", own)
    subject = subject_of(table, CONFLUENT, name, part)
    try:
        return newest_type(table, subject)
    except NoSchema as error:
        if not registers(table, CONFLUENT) or name != own:
            message = f'table "{table.name}": the schema registry has no subject "{subject}"'
            hint = f"Register it, or leave out '{CONFLUENT}.auto-register' and '{CONFLUENT}.{MESSAGE_NAME}'."
            raise DataError(message, detail=f"{error}.", hint=hint) from None
    text = file_of_columns(columns, own).SerializeToString(deterministic=True)
    id = written_id(table, CONFLUENT, subject, base64.b64encode(text).decode(), "PROTOBUF")
    descriptor = pool_of((text,)).FindMessageTypeByName(own)
    return RegisteredType(ProtobufType.of(descriptor, f'the schema of "{own}"', table), id, (0,))


def _encoded(type: ProtobufType, rows: pa.Table, table: Table, *, is_key: bool) -> list[bytes]:
    """Return rows as messages; a field without a column, or with NULL, is not set. Raises DataError for rows that do not fit."""
    arrays, types = [], [pa.field(arrow_field.name, _loose(arrow_field.type)) for arrow_field in type.handler.schema()]
    try:
        for arrow_field in types:
            if arrow_field.name not in rows.column_names:
                arrays.append(pa.nulls(rows.num_rows, arrow_field.type))
                continue
            array = rows.column(arrow_field.name).cast(arrow_field.type).combine_chunks()
            field = type.descriptor.fields_by_name[arrow_field.name]
            fault = next(_faults(array, field), None)
            if fault is None and is_key and array.null_count and not field.has_presence:
                fault = "is NULL, which cannot be told from its default: declare it optional in the schema"
            if fault:
                message = f'a row of table "{table.name}" does not fit {type.name}'
                raise DataError(message, detail=f'Its "{arrow_field.name}" {fault}.')
            arrays.append(array)
        batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(types))
        for fault in _clashes(dict(zip(batch.schema.names, batch.columns, strict=True)), type.descriptor):
            raise DataError(f'a row of table "{table.name}" does not fit {type.name}', detail=f"It {fault}.")
        encoded: list[bytes] = type.handler.record_batch_to_array(batch).to_pylist()
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f'rows of table "{table.name}" do not fit {type.name}', detail=f"{error}.") from error
    return encoded


def _loose(type: pa.DataType) -> pa.DataType:
    """Return a type with the same parts, all of which may be NULL."""
    if pa.types.is_map(type):
        return pa.map_(type.key_type, _loose(type.item_type))
    if pa.types.is_list(type):
        return pa.list_(_loose(type.value_type))
    if pa.types.is_struct(type):
        return pa.struct([pa.field(field.name, _loose(field.type)) for field in type])
    return type


def _faults(array: pa.Array, field: FieldDescriptor) -> Iterator[str]:
    """Yield the faults of a field's values that Protobuf would silently change."""
    if pa.types.is_map(array.type):
        entry = field.message_type.fields_by_name
        yield from _inside(array.keys, entry["key"], "has a NULL in a map")
        yield from _inside(array.items, entry["value"], "has a NULL in a map")
    elif field.is_repeated:
        yield from _inside(array.flatten(), field, "has a NULL in a list")
    else:
        yield from _inside(array, field, None)


def _inside(array: pa.Array, field: FieldDescriptor, without_null: str | None) -> Iterator[str]:
    if without_null and array.null_count:
        yield f"{without_null}, which Protobuf does not have"
    if field.enum_type is not None:
        unknown = set(filter(None, pc.unique(array).to_pylist())) - set(field.enum_type.values_by_name)
        yield from (f'is "{name}", which is not one of its names' for name in sorted(unknown))
    elif pa.types.is_struct(array.type) and isinstance(field.message_type, Descriptor):
        parts = {child.name: array.field(n).filter(array.is_valid()) for n, child in enumerate(array.type)}
        yield from _clashes(parts, field.message_type)
        for name, part in parts.items():
            yield from _faults(part, field.message_type.fields_by_name[name])


def _clashes(values: Mapping[str, pa.Array], type: Descriptor) -> Iterator[str]:
    """Yield a fault for each oneof of which a row sets several fields: a reader would see only the last one."""
    for group in type.oneofs:
        names = [field.name for field in group.fields if field.name in values]
        presence = [pc.is_valid(values[name]).cast(pa.int32()) for name in names]
        if len(presence) > 1 and (pc.max(reduce(pc.add, presence)).as_py() or 0) > 1:
            yield f'has several of {", ".join(names)}, of which "{group.name}" can have one'


def _zigzag(number: int) -> bytes:
    whole, written = number << 1, bytearray()
    while whole > 127:
        written.append(whole & 127 | 128)
        whole >>= 7
    return bytes([*written, whole])
