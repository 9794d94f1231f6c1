"""The server's description of itself and its SQL: numbers and values of Flight SQL's `SqlInfo`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from sqlstream.distribution import VERSION

Value = str | bool | int | list[str]

_UNION = pa.dense_union(
    [
        pa.field("string_value", pa.string()),
        pa.field("bool_value", pa.bool_()),
        pa.field("bigint_value", pa.int64()),
        pa.field("int32_bitmask", pa.int32()),
        pa.field("string_list", pa.list_(pa.field("string_data", pa.string()))),
        pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.field("$data$", pa.int32())))),
    ]
)
SQL_INFO_SCHEMA = pa.schema([pa.field("info_name", pa.uint32(), False), pa.field("value", _UNION, False)])
_STRING, _BOOL, _BIGINT, _INT, _STRINGS, _MAP = range(6)

_INSENSITIVE, _NULLS_LAST, _READ_COMMITTED = 1, 3, 2
_VALUES: Mapping[int, Value] = {
    0: "sqlstream",
    1: VERSION,
    2: pa.__version__,
    3: True,  # read only
    4: True,  # SQL
    5: False,  # Substrait
    8: 1,  # transactions can be begun and ended; they change nothing
    9: True,  # queries can be cancelled
    10: False,
    11: False,
    100: 0,  # prepared statements have no timeout
    101: 0,
    **dict.fromkeys((500, 501, 502), False),  # DDL
    503: _INSENSITIVE,
    504: '"',
    505: _INSENSITIVE,
    506: True,
    507: _NULLS_LAST,
    **{number: list[str]() for number in (508, 509, 510, 511, 512)},  # keywords and functions
    513: "\\",
    514: "",
    515: True,
    516: True,
    518: True,
    519: False,
    520: True,
    521: True,
    522: 3,  # GROUP BY: unrelated, and beyond SELECT
    523: True,
    524: False,
    525: 7,  # all grammars
    526: 1,  # the entry level of SQL-92
    527: False,
    528: 2,  # all outer joins
    529: "schema",
    530: "procedure",
    531: "catalog",
    532: True,
    533: 0,
    534: 0,
    535: 0,
    536: False,
    537: False,
    538: 15,  # all subqueries
    539: True,
    540: 3,  # UNION and UNION ALL
    556: True,
    562: _READ_COMMITTED,
    563: True,
    564: 1 << _READ_COMMITTED,
    565: False,
    566: False,
    567: 1 << 1,  # forward only
    568: 0,
    569: 1 << 1,  # read only
    570: 0,
    571: 0,
    **dict.fromkeys(range(572, 577), False),
}
_CONVERSIONS = 517
# Numbers whose values are 64-bit integers, as the JDBC driver reads them so.
_LONG = {503, 505, 507, 562}
# The maximum sizes and numbers of things: 0 for no limit.
_SIZES = [number for number in range(541, 562) if number != 556]


def sql_info(numbers: Collection[int]) -> pa.Table:
    """Return a table (info_name, value) of the requested numbers; of all if none is requested."""
    entries: list[tuple[int, int, object]] = [(n, _BIGINT if n in _LONG else _kind(v), v) for n, v in _VALUES.items()]
    entries += [(number, _BIGINT, 0) for number in _SIZES] + [(_CONVERSIONS, _MAP, [])]
    rows = sorted(row for row in entries if not numbers or row[0] in numbers)
    children: list[list[object]] = [[] for _ in _UNION]
    offsets = []
    for _, kind, value in rows:
        offsets.append(len(children[kind]))
        children[kind].append(value)
    values = pa.UnionArray.from_dense(
        pa.array([kind for _, kind, _ in rows], pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(child, field.type) for child, field in zip(children, _UNION, strict=True)],
        [field.name for field in _UNION],
    )
    return pa.Table.from_arrays([pa.array([row[0] for row in rows], pa.uint32()), values], schema=SQL_INFO_SCHEMA)


def _kind(value: Value) -> int:
    match value:
        case str():
            return _STRING
        case bool():
            return _BOOL
        case int():
            return _INT
    return _STRINGS
