"""Avro messages into Arrow: all of a schema at once, and one by one where that fails or polars does not know its types.

polars reads container files. Messages of one schema become one: a header, and a block that holds all of them. A message that
is cut off would shift all behind it. So the schema gets a last field, and a number that nobody guesses stands behind each
message: where it is not read again, the messages are decoded one by one, which tells the malformed from the others.
"""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.connectors.formats.avro.schemas import AvroSchema
from sqlstream.connectors.formats.decoded import Decoded

_END = "__sqlstream_end"
_SENTINEL = secrets.randbits(62)
_SYNC = b"sqlstream sync.."
# What container files may be compressed with for polars.
_POLARS_CODECS = ("null", "deflate", "snappy")


def decode(schema: AvroSchema, messages: Sequence[bytes], numbers: Sequence[int]) -> Decoded:
    """Return the rows that messages are; `numbers` are theirs among all."""
    rows = _all(schema, messages) if schema.is_plain() and has_polars() else None
    if rows is not None:
        return Decoded(schema.name, rows, numbers)
    found, good, faults = [], [], dict[int, str]()
    for number, message in zip(numbers, messages, strict=True):
        try:
            found.append(_one(schema, message))
            good.append(number)
        except Exception as error:
            # Whatever bytes may make of the decoder.
            reason = str(error) or type(error).__name__
            faults[number] = f"The value is no message of {schema.name}: {reason}"
    try:
        return Decoded(schema.name, _table(schema, found), good, faults)
    except Exception:
        return _fitting(schema, found, good, faults)


def _fitting(
    schema: AvroSchema, rows: Sequence[Mapping[str, Any]], numbers: Sequence[int], faults: dict[int, str]
) -> Decoded:
    """Return rows of which some are not what Arrow has for their types, such as a number with too many digits."""
    found, good = [], []
    for number, row in zip(numbers, rows, strict=True):
        try:
            _table(schema, [row])
        except Exception as error:
            faults[number] = f"The value does not fit {schema.name}: {error}"
        else:
            found.append(row)
            good.append(number)
    return Decoded(schema.name, _table(schema, found), good, faults)


def _table(schema: AvroSchema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows of fastavro, with the fields that Arrow has a type for."""
    arrays = []
    for name, type_ in zip(schema.arrow.names, schema.arrow.types, strict=True):
        values = [row[name] for row in rows]
        arrays.append(pa.array([_plain(value, type_) for value in values], type_))
    return pa.Table.from_arrays(arrays, schema=schema.arrow)


def has_polars() -> bool:
    try:
        import polars  # noqa: F401
    except ImportError:
        return False
    return True


def _all(schema: AvroSchema, messages: Sequence[bytes]) -> pa.Table | None:
    """Return the rows of all messages, None where one is malformed."""
    frame = _frame(_container(schema, messages))
    if frame is None or frame.height != len(messages) or not (frame[_END] == _SENTINEL).all():
        return None
    return _arrow(frame.drop(_END))


def decode_container(schema: AvroSchema, body: bytes, count: int, codec: str) -> pa.Table:
    """Return the rows of a container file that is in memory, of the types of `AvroSchema.arrow`. Raises ValueError.

    `count` is the number of rows that it must have.
    """
    try:
        return _container_rows(schema, body, count, codec).cast(schema.arrow)
    except ValueError:
        raise
    except Exception as error:
        # Whatever bytes may make of the decoder.
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _container_rows(schema: AvroSchema, body: bytes, count: int, codec: str) -> pa.Table:
    rows = None
    if codec in _POLARS_CODECS and schema.is_plain() and has_polars():
        frame = _frame(body)
        rows = None if frame is None or frame.height != count else _arrow(frame).select(schema.arrow.names)
    if rows is None:
        rows = _one_by_one(schema, body)
    if rows.num_rows != count:
        raise ValueError(f"it has {rows.num_rows} rows in place of {count}")
    return rows


def _one_by_one(schema: AvroSchema, body: bytes) -> pa.Table:
    import fastavro

    try:
        found: list[Any] = list(fastavro.reader(io.BytesIO(body)))
    except Exception as error:
        # Whatever bytes may make of the decoder.
        raise ValueError(str(error) or type(error).__name__) from error
    return _table(schema, found)


def _frame(body: bytes) -> Any:
    """Return what polars makes of a container file, None where it cannot."""
    import polars

    try:
        return polars.read_avro(io.BytesIO(body))
    except BaseException as error:
        # A panic of Rust's code is not an Exception.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            return None
        raise


def _arrow(frame: Any) -> pa.Table:
    rows: pa.Table = frame.to_arrow()
    for number, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            rows = rows.set_column(number, field.name, pc.cast(rows.column(number), pa.string()))
        elif pa.types.is_time64(field.type):
            rows = rows.set_column(number, field.name, pc.cast(rows.column(number), pa.time64("us")))
    return rows


def _container(schema: AvroSchema, messages: Sequence[bytes]) -> bytes:
    record = {**schema.record, "fields": [*schema.record["fields"], {"name": _END, "type": "long"}]}
    end = _long(_SENTINEL)
    header = [b"Obj\1", _long(2), _string(b"avro.schema"), _string(json.dumps(record).encode())]
    header += [_string(b"avro.codec"), _string(b"null"), b"\0", _SYNC]
    body = end.join(messages) + end
    return b"".join([*header, _long(len(messages)), _long(len(body)), body, _SYNC])


def _long(value: int) -> bytes:
    """Return a number as Avro writes it.

    >>> _long(-1), _long(64)
    (b'\\x01', b'\\x80\\x01')
    """
    rest, written = (value << 1) ^ (value >> 63), bytearray()
    while rest > 127:
        written.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*written, rest])


def _string(value: bytes) -> bytes:
    return _long(len(value)) + value


def _one(schema: AvroSchema, message: bytes) -> dict[str, Any]:
    import fastavro

    stream = io.BytesIO(message)
    found: Any = fastavro.schemaless_reader(stream, schema.parsed, None)
    if stream.tell() != len(message):
        raise ValueError(f"{len(message) - stream.tell()} bytes are left over")
    return dict(found)


def _plain(value: Any, type: pa.DataType) -> Any:
    """Return a value as Arrow takes it: a map as its items, a UUID as text."""
    if value is None:
        return None
    if pa.types.is_map(type):
        return [(key, _plain(item, type.item_type)) for key, item in value.items()]
    if pa.types.is_list(type):
        return [_plain(item, type.value_type) for item in value]
    if pa.types.is_struct(type):
        return {field.name: _plain(value[field.name], field.type) for field in type}
    return str(value) if isinstance(value, UUID) else value
