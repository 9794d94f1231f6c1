"""Decodes Avro messages into Arrow: all messages of a schema at once with polars, or one by one with fastavro.

polars reads container files only, so the messages of a schema become one container file: a header, and one block with all of
them. A truncated message would shift all messages behind it. To notice this, the schema gets one more field at its end, and a
random number, which nobody can guess, follows each message. If the numbers do not come out again, or polars does not know the
schema's types, the messages are decoded one by one, which separates the malformed ones from the others.
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
# The codecs of container files that polars can read.
_POLARS_CODECS = ("null", "deflate", "snappy")


def decode(schema: AvroSchema, messages: Sequence[bytes], numbers: Sequence[int]) -> Decoded:
    """Decode messages of a schema; `numbers` are their indexes among all values, see `Decoded`."""
    rows = _all(schema, messages) if schema.is_plain() and has_polars() else None
    if rows is not None:
        return Decoded(schema.name, rows, numbers)
    records, good, faults = [], [], dict[int, str]()
    for number, message in zip(numbers, messages, strict=True):
        try:
            records.append(_one(schema, message))
            good.append(number)
        except Exception as error:
            # A decoder may raise anything for damaged bytes.
            reason = str(error) or type(error).__name__
            faults[number] = f"The value is no message of {schema.name}: {reason}"
    try:
        return Decoded(schema.name, _table(schema, records), good, faults)
    except Exception:
        return _fitting(schema, records, good, faults)


def _fitting(
    schema: AvroSchema, rows: Sequence[Mapping[str, Any]], numbers: Sequence[int], faults: dict[int, str]
) -> Decoded:
    """Return the rows that Arrow's types can hold, and faults for the others, such as a number with too many digits."""
    fitting_rows, good = [], []
    for number, row in zip(numbers, rows, strict=True):
        try:
            _table(schema, [row])
        except Exception as error:
            faults[number] = f"The value does not fit {schema.name}: {error}"
        else:
            fitting_rows.append(row)
            good.append(number)
    return Decoded(schema.name, _table(schema, fitting_rows), good, faults)


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
    """Return the rows of all messages; None if one is malformed."""
    frame = _frame(_container(schema, messages))
    if frame is None or frame.height != len(messages) or not (frame[_END] == _SENTINEL).all():
        return None
    return _arrow(frame.drop(_END))


def decode_container(schema: AvroSchema, body: bytes, count: int, codec: str) -> pa.Table:
    """Return the rows of a container file in memory, with the types of `AvroSchema.arrow`.

    Raises ValueError if the file is damaged, or does not have `count` rows.
    """
    try:
        return _container_rows(schema, body, count, codec).cast(schema.arrow)
    except ValueError:
        raise
    except Exception as error:
        # A decoder may raise anything for damaged bytes.
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
        records: list[Any] = list(fastavro.reader(io.BytesIO(body)))
    except Exception as error:
        # A decoder may raise anything for damaged bytes.
        raise ValueError(str(error) or type(error).__name__) from error
    return _table(schema, records)


def _frame(body: bytes) -> Any:
    """Return a container file as a DataFrame of polars; None if polars cannot read it."""
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
    """Encode a number as Avro's `long`.

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
    record: Any = fastavro.schemaless_reader(stream, schema.parsed, None)
    if stream.tell() != len(message):
        raise ValueError(f"{len(message) - stream.tell()} bytes are left over")
    return dict(record)


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
