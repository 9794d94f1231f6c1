"""The hash that spreads keys over buckets. It is defined here, so that an upgrade of DuckDB never moves a key from its state.

It must never change. `tests/duck/test_key_hash.py` has test vectors for every type.

**Canonical values.** A value is hashed as an integer, as a DOUBLE or as a text; equal values of like types have the same hash:

- BOOLEAN and integers of up to 64 bits: the number. TIME: microseconds. TIMESTAMP with and without a time zone, and in seconds
  or milliseconds: microseconds since 1970; TIMESTAMP_NS: nanoseconds. DATE: days since 1970, modulo 2^32. DECIMAL of up to 18
  digits: the number without its point, so 1.50 in a DECIMAL(4, 2) is 150.
- FLOAT and DOUBLE: the DOUBLE. -0.0 is 0.0, and there is one NaN.
- VARCHAR: its UTF-8 bytes. Longer integers and decimals, UUID, BLOB and all other types: DuckDB's text of them.
- INTERVAL: the text of its microseconds, with 30 days in a month and 24 hours in a day: 1 month, 30 days and 720 hours are equal.
- A list, an array or a map: the text of the hashes of its elements, joined by commas; of a map these are the entries. A STRUCT:
  the text of the hashes of its fields, joined by commas.

**Hashes**, with all arithmetic modulo 2^64, `P` = 0xd6e8feb86659fd93 and

    mix(x) = x ^= x >> 32; x *= P; x ^= x >> 32; x *= P; x ^ (x >> 32)

- A number: `mix` of its two's complement. A DOUBLE: `mix` of its IEEE 754 bits.
- A text of n bytes: h = 0xe17a1465 ^ (n * 0xc6a4a7935bd1e995). For every 8 bytes as a little-endian number w, the last ones
  filled up with zeros: h = (h ^ w) * P. The hash is mix(h).
- NULL: 0xbf58476d1ce4e5b9.
- Several columns: the hash a of the columns so far and the hash b of the next one make ((a ^ (a >> 32)) * P) ^ b.
- No column at all: the hash of the number 0.

The bucket is the hash modulo the number of buckets.

Rows travel and are stored with intervals as text, which is parsed for the hash. Jobs of earlier versions hash the text itself,
which may differ between equal intervals: they continue to do so, see `in_version`.

DuckDB 2.0's function `hash` returns this hash for canonical values. Every process tests once whether its DuckDB does; if not, the
functions below compute the hash, more slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType
from duckdb.sqltypes import UBIGINT, DuckDBPyType

from sqlstream.catalog import Column
from sqlstream.duck import databases
from sqlstream.duck.sql import quote_name
from sqlstream.duck.types import has_intervals, stored_type

Hashes = npt.NDArray[np.uint64]

# How a job hashes its keys: intervals by their text, or by their value.
BY_TEXT, BY_VALUE = 1, 2

_P = np.uint64(0xD6E8FEB86659FD93)
_SEED = np.uint64(0xE17A1465)
_LENGTH = np.uint64(0xC6A4A7935BD1E995)
_NULL = np.uint64(0xBF58476D1CE4E5B9)
_HALF = np.uint64(32)
# The same for Python's integers, which do not overflow.
_PRIME, _LAST = int(_P), 2**64 - 1

# Arguments of DuckDB's `hash` and the results that it must have: each kind of canonical value, NULL, several columns.
_PROBES = {
    "-1::BIGINT": 4939931809569846361,
    "18446744073709551615::UBIGINT": 4939931809569846361,
    "DATE '1960-01-01'": 4131337331256851724,
    "TIME '00:00:01'": 2781178149335693548,
    "TIMESTAMP '1970-01-01 00:00:01'": 2781178149335693548,
    "TIMESTAMP_NS '1970-01-01 00:00:00.001'": 2781178149335693548,
    "-1.50::DECIMAL(18, 2)": 2339823072644577261,
    "-0.0::DOUBLE": 0,
    "-'nan'::DOUBLE": 9170934016072976158,
    "1.5::DOUBLE": 1706605666616485939,
    "''": 5104928228550385088,
    "'abcdefgh'": 10586210142991718607,
    "'ä€ä€ä€ä€ä€ä€ä€'": 8407862644196782558,
    "NULL::VARCHAR": 13787848793156543929,
    "1::BIGINT, 2::BIGINT": 6530802887144669425,
}
# Types whose canonical value is the value itself.
_AS_THEY_ARE = {
    "bigint",
    "ubigint",
    "date",
    "time",
    "timestamp",
    "timestamp with time zone",
    "timestamp_ns",
    "double",
    "varchar",
}
_CASTS = {
    **dict.fromkeys(("boolean", "tinyint", "smallint", "integer", "utinyint", "usmallint", "uinteger"), "BIGINT"),
    **dict.fromkeys(("timestamp_s", "timestamp_ms"), "TIMESTAMP"),
    "float": "DOUBLE",
}
# Digits of a DECIMAL that fits into 64 bits.
_SHORT = 18


def hashed_type(type: str) -> str:
    """Return the type by which the stored values of a type are hashed: INTERVAL, unlike other types, is hashed decoded.

    >>> hashed_type("UHUGEINT"), hashed_type("INTERVAL[]")
    ('VARCHAR', 'INTERVAL[]')
    """
    return type if has_intervals(type) else stored_type(type)


def in_version(keys: Sequence[Column], version: int) -> tuple[Column, ...]:
    """Return key columns with the types by which a job hashes them; `version` is BY_TEXT or BY_VALUE, from its record."""
    return tuple(keys) if version >= BY_VALUE else tuple(Column(c.name, stored_type(c.type)) for c in keys)


def bucket(keys: Sequence[Column], buckets: int) -> str:
    """Return the SQL of a row's bucket, an INTEGER from 0 to `buckets` - 1."""
    return f"CAST({key_hash([(quote_name(c.name), c.type) for c in keys])} % {buckets} AS INTEGER)"


def key_hash(keys: Sequence[tuple[str, str]]) -> str:
    """Return the SQL of the hash, a UBIGINT, of values: pairs of SQL and type. Without any it is the hash of 0.

    >>> key_hash([("a", "INTEGER"), ("b", "VARCHAR")])
    'hash(CAST(a AS BIGINT), b)'
    """
    values = [_canonical(sql, DuckDBPyType(type)) for sql, type in keys or [("0", "BIGINT")]]
    if duckdb_agrees():
        return f"hash({', '.join(sql for sql, _ in values)})"
    first, *others = (_own_hash(sql, kind) for sql, kind in values)
    for other in others:
        first = f"_hash_both({first}, {other})"
    return first


def _canonical(sql: str, type: DuckDBPyType) -> tuple[str, str]:
    """Return the SQL of the canonical value, and the kind of its type."""
    parts = [(name, part) for name, part in type.children if isinstance(part, DuckDBPyType)] if _is_nested(type) else []
    match type.id:
        case id if id in _AS_THEY_ARE:
            return sql, id
        case id if id in _CASTS:
            return f"CAST({sql} AS {_CASTS[id]})", _CASTS[id].lower()
        case "decimal" if (digits := _digits(type))[0] <= _SHORT:
            return f"CAST({sql} AS DECIMAL({_SHORT}, {digits[1]}))", "decimal"
        case "interval":
            return f"CAST({_microseconds(f'CAST({sql} AS INTERVAL)')} AS VARCHAR)", "varchar"
        case "list" | "array":
            return _listed(sql, parts[0][1]), "varchar"
        case "map":
            entry = DuckDBPyType(f"STRUCT(key {parts[0][1]}, value {parts[1][1]})")
            return _listed(f"map_entries({sql})", entry), "varchar"
        case "struct":
            # concat_ws skips NULLs, but no hash is NULL.
            hashes = ", ".join(key_hash([(f"({sql}).{quote_name(name)}", str(part))]) for name, part in parts)
            return f"CASE WHEN {sql} IS NOT NULL THEN concat_ws(',', {hashes}) END", "varchar"
    return f"CAST({sql} AS VARCHAR)", "varchar"


def _microseconds(interval: str) -> str:
    """Return the SQL of the length of an interval in microseconds, a HUGEINT, since it may not fit into a BIGINT."""
    units = {"year": 31_104_000_000_000, "month": 2_592_000_000_000, "day": 86_400_000_000}
    # The part `microsecond` includes the seconds.
    units |= {"hour": 3_600_000_000, "minute": 60_000_000, "microsecond": 1}
    parts = (f"CAST(date_part('{unit}', {interval}) AS HUGEINT) * {factor}" for unit, factor in units.items())
    return f"({' + '.join(parts)})"


def _listed(sql: str, element: DuckDBPyType) -> str:
    return f"array_to_string(list_transform({sql}, lambda _e: {key_hash([('_e', str(element))])}), ',')"


def _is_nested(type: DuckDBPyType) -> bool:
    return type.id in ("list", "array", "map", "struct")


def _digits(type: DuckDBPyType) -> tuple[int, int]:
    """Return the precision and the scale of a DECIMAL."""
    (_, precision), (_, scale) = type.children
    assert isinstance(precision, int)
    assert isinstance(scale, int)
    return precision, scale


@cache
def duckdb_agrees() -> bool:
    """Return whether DuckDB's `hash` is the hash of this module."""
    with databases.passing() as con:
        hashes = con.execute(f"SELECT {', '.join(f'hash({values})' for values in _PROBES)}").fetchone()
    return hashes == tuple(_PROBES.values())


# The names of the functions that compute the hash if DuckDB does not, by the kind of their argument.
_HASH_FUNCTIONS = {id: f"_hash_{id.replace(' ', '_')}" for id in sorted(_AS_THEY_ARE)}


def _own_hash(sql: str, kind: str) -> str:
    if kind == "decimal":
        sql, kind = f"CAST(replace(CAST({sql} AS VARCHAR), '.', '') AS BIGINT)", "bigint"
    return f"{_HASH_FUNCTIONS[kind]}({sql})"


def bucket_of(values: Sequence[int | str | None], buckets: int) -> int:
    """Return the bucket of a key of integers, texts and NULLs, as `bucket` computes it, but without a query.

    >>> bucket_of(["key-1", -7], 97)
    79
    """
    first, *others = map(_hash_of, values)
    for other in others:
        first = (first ^ first >> 32) * _PRIME & _LAST ^ other
    return first % buckets


def _hash_of(value: int | str | None) -> int:
    if value is None:
        return int(_NULL)
    if isinstance(value, int):
        return _mixed_number(value & _LAST)
    data = value.encode()
    text_hash = int(_SEED) ^ len(data) * int(_LENGTH) & _LAST
    for start in range(0, len(data), 8):
        text_hash = (text_hash ^ int.from_bytes(data[start : start + 8], "little")) * _PRIME & _LAST
    return _mixed_number(text_hash)


def _mixed_number(x: int) -> int:
    x = (x ^ x >> 32) * _PRIME & _LAST
    x = (x ^ x >> 32) * _PRIME & _LAST
    return x ^ x >> 32


def register(con: duckdb.DuckDBPyConnection) -> None:
    """Register the functions that the SQL of `key_hash` calls, if DuckDB's `hash` returns other values."""
    if duckdb_agrees():
        return
    for id, name in _HASH_FUNCTIONS.items():
        _create(con, name, _hashes, [DuckDBPyType(id)])
    _create(con, "_hash_both", _both, [UBIGINT, UBIGINT])


def _create(
    con: duckdb.DuckDBPyConnection, name: str, function: Callable[..., pa.Array], parameters: Sequence[DuckDBPyType]
) -> None:
    special = FunctionNullHandling.SPECIAL
    con.create_function(name, function, [*parameters], UBIGINT, type=PythonUDFType.ARROW, null_handling=special)


def _hashes(values: pa.ChunkedArray) -> pa.Array:
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        hashes = _texts(array.cast(pa.large_binary()))
    elif pa.types.is_floating(array.type):
        hashes = _mixed(_bits(array.fill_null(0.0).to_numpy(zero_copy_only=False)))
    else:
        width = array.type.bit_width
        numbers = array.view(pa.uint32() if width == 32 else pa.uint64())
        hashes = _mixed(numbers.fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64))
    return pa.array(np.where(array.is_null().to_numpy(zero_copy_only=False), _NULL, hashes))


def _both(first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.Array:
    a, b = (values.to_numpy() for values in (first, second))
    return pa.array(((a ^ (a >> _HALF)) * _P) ^ b)


def _mixed(x: Hashes) -> Hashes:
    x = (x ^ (x >> _HALF)) * _P
    x = (x ^ (x >> _HALF)) * _P
    return x ^ (x >> _HALF)


def _bits(numbers: npt.NDArray[np.float64]) -> Hashes:
    # Adding 0.0 turns -0.0 into 0.0; every NaN becomes the same NaN.
    return np.where(np.isnan(numbers), np.nan, numbers + 0.0).view(np.uint64)


def _texts(array: pa.LargeBinaryArray) -> Hashes:
    """Return the hashes of texts; a step hashes the next eight bytes of all of them."""
    _, offsets, content = array.buffers()
    ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    starts, lengths = ends[:-1], np.diff(ends)
    # The last block of a text may extend up to seven bytes past its end.
    data = np.frombuffer(bytes(content or b"") + bytes(8), np.uint8)
    hashes = _SEED ^ (lengths.astype(np.uint64) * _LENGTH)
    for block in range(-(-int(lengths.max(initial=0)) // 8)):
        remaining = lengths - 8 * block
        [rows] = np.nonzero(remaining > 0)
        read = data[(starts[rows] + 8 * block)[:, None] + np.arange(8)]
        read[np.arange(8) >= remaining[rows][:, None]] = 0
        hashes[rows] = (hashes[rows] ^ read.view("<u8")[:, 0]) * _P
    return _mixed(hashes)
