"""Decodes Avro messages into Arrow: all messages of a schema at once with polars, or one by one with fastavro.

polars reads container files only, so the messages of a schema become one container file: a header, and one block with all of
them. A truncated message would shift all messages behind it. To notice this, the schema gets one more field at its end, and a
random number, which nobody can guess, follows each message. If the numbers do not come out again, or polars does not know the
schema's types, the messages are decoded one by one, which separates the malformed ones from the others.
"""

from __future__ import annotations

import io
import json
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.connectors.formats.avro.containers import AvroContainer
from sqlstream.connectors.formats.avro.schemas import OWN, Avro, AvroSchema
from sqlstream.connectors.formats.decoded import DecodedValues

_END = "__sqlstream_end"
_SENTINEL = secrets.randbits(62)
_SYNC = b"sqlstream sync.."
# The codecs of container files that polars can read, with the most rows that a byte of a block can hold.
_POLARS_CODECS = {"null": 1, "deflate": 1040, "snappy": 64}
# Arrow takes values of these types unseen.
_UNCHECKED = re.compile("decimal|time64")
# A number of more digits than a decimal has, and a context that does not round.
_TOO_LARGE, _EXACT = Decimal(1 << 256), Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


def decode(
    schema: AvroSchema, messages: Sequence[bytes], numbers: Sequence[int], names: Collection[str] | None = None
) -> DecodedValues:
    """Decode messages of a schema; `numbers` are their indexes among all values, see `DecodedValues`.

    `names` are the names in lower case of the fields that are read, by default all. A value of another field need not fit its
    type. Raises DataError if fastavro rejects the schema.
    """
    fields = chosen(schema, names)
    untyped = {name.lower(): type_ for name, type_ in schema.untyped.items()}
    rows = _all(schema, fields, messages) if schema.is_plain() and has_polars() else None
    if rows is not None:
        return DecodedValues(schema.name, rows, numbers, untyped=untyped)
    parsed = schema.readable
    records, good, faults = [], [], dict[int, str]()
    for number, message in zip(numbers, messages, strict=True):
        try:
            records.append(_one(parsed, message))
            good.append(number)
        except Exception as error:
            # A decoder may raise anything for damaged bytes.
            reason = str(error) or type(error).__name__
            faults[number] = f"The value is no message of {schema.name}: {reason}"
    decoded = DecodedValues(schema.name, fields.empty_table(), good, faults, untyped=untyped)
    try:
        return replace(decoded, rows=_table(fields, records))
    except Exception:
        return _fitting(fields, records, decoded)


def chosen(schema: AvroSchema, names: Collection[str] | None) -> pa.Schema:
    """Return the fields with some names, which are in lower case, as an Arrow schema; all fields if `names` is None."""
    return schema.arrow if names is None else pa.schema([f for f in schema.arrow if f.name.lower() in names])


def _fitting(fields: pa.Schema, rows: Sequence[Mapping[str, Any]], decoded: DecodedValues) -> DecodedValues:
    """Return the rows that Arrow's types can hold, and faults for the others, such as a number with too many digits."""
    fitting_rows, good, faults = [], [], dict(decoded.faults)
    for number, row in zip(decoded.numbers, rows, strict=True):
        try:
            _table(fields, [row])
        except Exception as error:
            faults[number] = f"The value does not fit {decoded.schema}: {error}"
        else:
            fitting_rows.append(row)
            good.append(number)
    return replace(decoded, rows=_table(fields, fitting_rows), numbers=good, faults=faults)


def _table(fields: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return some fields of rows of fastavro. Raises ValueError or another exception for a value that does not fit."""
    arrays = []
    for name, type_ in zip(fields.names, fields.types, strict=True):
        values = [row[name] for row in rows]
        arrays.append(pa.array([_plain(value, type_) for value in values], type_))
    return _checked(pa.Table.from_arrays(arrays, schema=fields))


def _checked(rows: pa.Table) -> pa.Table:
    """Return the rows unchanged. Raises ValueError if a decimal has too many digits, or a time is outside of a day."""
    for column in rows.columns:
        if _UNCHECKED.search(str(column.type)):
            column.validate(full=True)
    return rows


def has_polars() -> bool:
    try:
        # Only whether it is installed counts.
        import polars  # noqa: F401
    except ImportError:
        return False
    return True


def _all(schema: AvroSchema, fields: pa.Schema, messages: Sequence[bytes]) -> pa.Table | None:
    """Return the rows of all messages; None if one is malformed, or has a value that does not fit."""
    frame = _frame(_container(schema, messages))
    if frame is None or frame.height != len(messages) or not (frame[_END] == _SENTINEL).all():
        return None
    try:
        return _checked(_arrow(frame, fields))
    except (ValueError, pa.ArrowException):
        return None


def decode_blocks(file: AvroContainer, blocks: bytes, count: int, fields: pa.Schema) -> pa.Table:
    """Return some fields of the rows in blocks of a container file, with the types of `fields`.

    Raises ValueError if the blocks are damaged, do not have `count` rows, or have a value that does not fit.
    """
    try:
        return _block_rows(file, blocks, count, fields)
    except ValueError:
        raise
    except Exception as error:
        # A decoder may raise anything for damaged bytes.
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _block_rows(file: AvroContainer, blocks: bytes, count: int, fields: pa.Schema) -> pa.Table:
    # For a damaged count polars would ask for memory that there is not, which ends the process.
    is_likely = count <= _POLARS_CODECS.get(file.codec, 0) * len(blocks)
    if is_likely and file.schema.is_plain() and has_polars():
        frame = _frame(_file(file.schema.for_reading(), blocks, file.codec, file.sync))
        if frame is not None and frame.height == count:
            return _checked(_arrow(frame, fields))
    records = _records(_file(file.schema.for_reading(OWN), blocks, file.codec, file.sync))
    if len(records) != count:
        raise ValueError(f"it has {len(records)} rows in place of {count}")
    return _table(fields, records)


def _records(body: bytes) -> list[Any]:
    try:
        return list(_fastavro().reader(io.BytesIO(body)))
    except Exception as error:
        # A decoder may raise anything for damaged bytes.
        raise ValueError(str(error) or type(error).__name__) from error


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


def _arrow(frame: Any, fields: pa.Schema) -> pa.Table:
    """Return some fields of a DataFrame. Raises ValueError for a value that does not fit."""
    if not fields.names:
        return fields.empty_table()
    rows: pa.Table = frame.select(fields.names).to_arrow()
    for number, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            rows = rows.set_column(number, field.name, pc.cast(rows.column(number), pa.string()))
        elif pa.types.is_time(fields.field(number).type) and pa.types.is_int32(field.type):
            rows = rows.set_column(number, field.name, pc.cast(rows.column(number), pa.time32("ms")))
    return rows.cast(fields)


def _container(schema: AvroSchema, messages: Sequence[bytes]) -> bytes:
    root = schema.for_reading()
    record = {**root, "fields": [*root["fields"], {"name": _END, "type": "long"}]}
    end = _long(_SENTINEL)
    body = end.join(messages) + end
    return _file(record, b"".join([_long(len(messages)), _long(len(body)), body, _SYNC]), "null", _SYNC)


def _file(record: Avro, blocks: bytes, codec: str, sync: bytes) -> bytes:
    """Return a container file of blocks, each of which ends with `sync`."""
    header = [b"Obj\1", _long(2), _string(b"avro.schema"), _string(json.dumps(record).encode())]
    return b"".join([*header, _string(b"avro.codec"), _string(codec.encode()), b"\0", sync, blocks])


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


def _one(parsed: Any, message: bytes) -> dict[str, Any]:
    stream = io.BytesIO(message)
    record: Any = _fastavro().schemaless_reader(stream, parsed, None)
    if stream.tell() != len(message):
        raise ValueError(f"{len(message) - stream.tell()} bytes are left over")
    return dict(record)


def _plain(value: Any, type: pa.DataType) -> Any:
    """Return a value as Arrow takes it: a map as its items."""
    if value is None:
        return None
    if pa.types.is_map(type):
        return [(key, _plain(item, type.item_type)) for key, item in value.items()]
    if pa.types.is_list(type):
        return [_plain(item, type.value_type) for item in value]
    if pa.types.is_struct(type):
        return {field.name: _plain(value[field.name], field.type) for field in type}
    return value


@lru_cache(maxsize=1)
def _fastavro() -> Any:
    """Return fastavro, which has readers for the logical types of `AvroSchema.readable`: they fail for no value.

    Values become numbers as Arrow takes them: in microseconds, or days. Arrow then says which do not fit.
    """
    import fastavro

    readers: dict[str, Callable[[Any, Any, Any], Any]] = {
        "int-time-millis": _microseconds,
        "long-timestamp-millis": _microseconds,
        "long-local-timestamp-millis": _microseconds,
        "bytes-decimal": _decimal,
        "fixed-decimal": _decimal,
    }
    for name, reader in readers.items():
        fastavro.read.LOGICAL_READERS[name.replace("-", f"-{OWN}", 1)] = reader
    return fastavro


def _microseconds(value: int, schema: Any, reader: Any) -> int:
    return value * 1000


def _decimal(value: bytes, schema: Mapping[str, Any], reader: Any) -> Decimal:
    whole = int.from_bytes(value, "big", signed=True)
    # To make a Decimal of a million digits would take minutes.
    return Decimal(whole).scaleb(-schema.get("scale", 0), _EXACT) if whole.bit_length() < 128 else _TOO_LARGE
