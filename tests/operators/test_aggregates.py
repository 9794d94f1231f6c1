"""Every aggregate that is allowed, against DuckDB's single pass over the same rows."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sqlstream.catalog import Column
from sqlstream.duck.types import check_encoded, encoded
from sqlstream.operators.aggregates.calls import (
    AggregateCall,
    Refused,
    Strategy,
    is_aggregate,
    partial,
    partials,
    reason,
    strategy,
    values,
)
from sqlstream.operators.aggregates.functions import ALIASES, FUNCTIONS, REFUSED

# One column per type, every second one with NULLs, all with duplicates; group 0 has NULLs only. `u` has no duplicates.
COLUMNS = {
    "b": "nullif(z % 13, 3)::BIGINT * 7 - 20",
    "n": "nullif(z % 11, 3)::INTEGER",
    "ut": "(z % 9)::UTINYINT",
    "ub": "nullif(z % 17, 1)::UBIGINT",
    "h": "nullif(z % 13, 3)::HUGEINT * 1000000000000000000000",
    "uh": "nullif(z % 7, 3)::UHUGEINT",
    "bn": "(z % 5)::BIGNUM",
    "d": "nullif(z % 19, 4)::DOUBLE / 3 + 0.5",
    "fl": "(z % 5)::FLOAT / 3",
    "m": "(nullif(z % 17, 4) * 1.37)::DECIMAL(10,2)",
    "m38": "(z % 17)::DECIMAL(38,3)",
    "v": "nullif('s' || z % 7, 's3')",
    "bl": "('b' || z % 6)::BLOB",
    "bo": "nullif(z % 3, 1)::BOOLEAN",
    "ts": "nullif(TIMESTAMP '2020-01-01' + to_minutes(z % 40), TIMESTAMP '2020-01-01 00:04:00')",
    "tz": "TIMESTAMPTZ '2020-01-01' + to_minutes(z % 40)",
    "tss": "(TIMESTAMP '2020-01-01' + to_minutes(z % 40))::TIMESTAMP_S",
    "tns": "(TIMESTAMP '2020-01-01' + to_minutes(z % 40))::TIMESTAMP_NS",
    "dt": "DATE '2020-01-01' + (z % 30)::INTEGER",
    "tm": "TIME '01:00' + to_minutes(z % 30)",
    "ttz": "(TIME '01:00' + to_minutes(z % 30))::TIMETZ",
    "iv": "to_days((z % 5)::INTEGER)",
    "li": "[z % 4, nullif(z % 3, 1)]",
    "ar": "[z % 4, z % 3]::BIGINT[2]",
    "st": "{'a': nullif(z % 4, 2), 'b': 'x' || z % 3}",
    "hs": "{'big': (z % 5)::HUGEINT, 'at': (TIMESTAMP '2020-01-01')::TIMESTAMP_S}",
    "mp": "MAP {'k': z % 3}",
    "en": "(['low', 'mid', 'high'])[1 + z % 3]::ENUM('low', 'mid', 'high')",
    "id": "('00000000-0000-0000-0000-00000000000' || z % 7)::UUID",
    "js": "('{\"k\":' || z % 4 || '}')::JSON",
    "bi": "(z % 6)::BIT",
    "u": "r::BIGINT",
}
INTEGERS = ("b", "n", "ut", "ub", "h", "uh")
NUMBERS = (*INTEGERS, "d", "fl", "m")
ALL = tuple(c for c in COLUMNS if c != "u")
ROWS = 260


@dataclass(frozen=True)
class Case:
    """A call, and what DuckDB must say: by default the call itself, where SQL leaves it open the rule we follow."""

    function: str
    arguments: tuple[str, ...] = ()
    expected: str = ""
    distinct: bool = False
    order_by: tuple[str, ...] = ()
    filter: str | None = None

    @property
    def sql(self) -> str:
        if self.expected:
            return self.expected + self._filter
        order = f" ORDER BY {', '.join(self.order_by)}" if self.order_by else ""
        arguments = ", ".join(self.arguments) or "*"
        return f"{self.function}({'DISTINCT ' if self.distinct else ''}{arguments}{order}){self._filter}"

    @property
    def _filter(self) -> str:
        return f" FILTER (WHERE {self.filter})" if self.filter else ""


def over(function: str, columns: tuple[str, ...], *constants: str, distinct: bool = True) -> list[Case]:
    """A function over several columns, once with a filter, and once with DISTINCT."""
    cases = [Case(function, (c, *constants)) for c in columns]
    cases.append(Case(function, (columns[0], *constants), filter="z % 4 = 1"))
    if distinct:
        cases.append(Case(function, (columns[0], *constants), distinct=True))
    return cases


def pairs(function: str) -> list[Case]:
    return [
        Case(function, ("d", "d * 2 + b")),
        Case(function, ("b", "n")),
        Case(function, ("m", "fl"), filter="n > 2"),
        Case(function, ("b", "n"), distinct=True),
    ]


def picks(function: str) -> list[Case]:
    """Without ORDER BY the least or greatest value, with it the row that it names."""
    name = function.removesuffix("_value") if function != "any_value" else function
    ordered = [
        Case(function, (v,), f"{name}({v} ORDER BY {', '.join(keys)}, {v} ASC NULLS LAST)", order_by=keys, filter=f)
        for v, keys, f in (
            ("v", ("ts",), None),
            ("v", ("ts DESC", "n NULLS FIRST"), None),
            ("h", ("iv DESC", "bi"), None),
            ("iv", ("en DESC NULLS FIRST",), "n > 2"),
            ("u", ("m desc nulls first",), None),
        )
    ]
    if function.endswith("_value") and function != "any_value":
        return ordered
    way = "max" if function == "last" else "min"
    return ordered + [Case(function, (c,), f"{way}({c})") for c in ALL]


def args(function: str) -> list[Case]:
    """Ties go to the extreme value, so the expected SQL orders by the key and then by the value."""
    way, kind = function[4:7], function[7:]
    direction = "DESC" if way == "max" else "ASC"
    cases = []
    for value, key in (
        ("v", "ts"), ("d", "b"), ("b", "v"), ("st", "h"), ("h", "li"), ("iv", "en"), ("en", "iv"), ("n", "uh"), ("u", "m")
    ):  # fmt: skip
        skipped = {"": f"{value} IS NOT NULL AND {key} IS NOT NULL", "_null": f"{key} IS NOT NULL"}.get(kind, "true")
        nulls = "FIRST" if way == "max" else "LAST"
        expected = (
            f"list({value} ORDER BY {key} {direction} NULLS LAST, {value} {direction} NULLS {nulls})"
            f" FILTER (WHERE {skipped})[1]"
        )
        cases.append(Case(function, (value, key), expected))
    cases.append(Case(function, ("u", "u + 1")))
    cases.append(Case(function, ("u", "u"), filter="n > 2"))
    cases.append(Case(function, ("v", "n"), f"{function}(v, n ORDER BY ts, v)", order_by=("ts",)))
    if kind != "_null":
        cases.append(Case(function, ("u", "u", "4")))
        cases.append(Case(function, ("u", "n * 100000 + u", "3"), filter="n > 2"))
    return cases


def quantiles(function: str) -> list[Case]:
    columns: tuple[str, ...] = ("b", "n", "ut", "h", "d", "fl", "m", "ts", "dt", "tm")
    columns = columns if function == "quantile_cont" else (*columns, "v", "li", "st", "iv", "en", "js", "tss", "bi")
    return [
        *over(function, columns, "0.3"),
        Case(function, ("b", "[0.1, 0.9]")),
        Case(function, ("m", "1.0")),
        Case(function, ("b", "0.25"), order_by=("b",)),
        Case(function, ("b", "0.0"), order_by=("b DESC",)),
        Case(function, ("d", "[0.1, 0.25]"), order_by=("d DESC",)),
    ]


def rows_of(function: str, final: str, *, filtered: str = "b") -> list[Case]:
    return [Case(function, (c,), final.format(c)) for c in ALL] + [
        Case(function, (filtered,), final.format(filtered), filter="n > 2")
    ]


ORDERED = "{0} ORDER BY {0} ASC NULLS LAST"
JSON_ARRAY = "json_group_array({0})"

CASES: dict[str, list[Case]] = {
    "count": [Case("count"), Case("count", filter="n > 2"), *over("count", ALL), Case("count", ("st",), distinct=True)],
    "count_if": over("count_if", ("bo", "n > 2")),
    "sum": [*over("sum", (*NUMBERS, "bo", "bn", "m38")), Case("sum", ("m",), order_by=("ts",))],
    "sum_no_overflow": over("sum_no_overflow", ("b", "n", "h", "m"), distinct=False),
    "avg": [*over("avg", (*NUMBERS, "m38", "ts", "tz", "tss", "dt", "tm", "ttz", "iv")), Case("avg", ("iv",), filter="n > 2")],
    "geomean": over("geomean", ("ub + 1", "m + 1"), distinct=False)[:2],
    "weighted_avg": [Case("weighted_avg", ("d", "n")), Case("weighted_avg", ("n", "m"))],
    **{f: [*over(f, ALL), *over(f, ("b", "d", "v", "st", "iv", "en"), "3")] for f in ("min", "max")},
    **{f: over(f, ("bo",)) for f in ("bool_and", "bool_or")},
    **{f: over(f, (*INTEGERS, "bi")) for f in ("bit_and", "bit_or", "bit_xor")},
    "product": over("product", ("d", "n", "m")),
    **{f: picks(f) for f in ("any_value", "first", "last", "first_value", "last_value")},
    **{f: args(f) for f in FUNCTIONS if f.startswith("arg_")},
    "bitstring_agg": [Case("bitstring_agg", (c, "0", "40"), filter=f) for c in ("n", "ut") for f in (None, "n > 2")],
    "approx_count_distinct": over("approx_count_distinct", ALL),
    "decimal_average": over("decimal_average", ("m", "m38")),
    **{f: over(f, NUMBERS) for f in ("favg", "kahan_sum", "kurtosis", "kurtosis_pop", "sem", "skewness")},
    **{f: over(f, NUMBERS) for f in ("stddev_pop", "stddev_samp", "var_pop", "var_samp")},
    **{f: pairs(f) for f in FUNCTIONS if f.startswith(("regr_", "covar_", "corr"))},
    **{f: quantiles(f) for f in ("quantile_cont", "quantile_disc")},
    "median": over("median", (*NUMBERS, "v", "ts", "dt", "tm", "li", "en")),
    "mad": over("mad", ("d", "fl", "m", "n", "ts", "dt", "tm")),
    "entropy": over("entropy", ALL),
    "histogram": [*over("histogram", ("b", "v", "ts", "en", "m")), *over("histogram", ("b",), "[0, 20, 30]")],
    "histogram_exact": over("histogram_exact", ("b",), "[1, 8, 15]"),
    "list": [
        *rows_of("list", f"list({ORDERED})"),
        Case("list", ("v",), "list(v ORDER BY ts DESC, v)", order_by=("ts DESC",)),
        Case("list", ("v",), order_by=("v DESC NULLS FIRST",), distinct=True),
        Case("list", ("en",), "list(DISTINCT en ORDER BY en)", distinct=True),
    ],
    "string_agg": [
        *rows_of("string_agg", f"string_agg({ORDERED})"),
        Case("string_agg", ("v", "' | '"), "string_agg(v, ' | ' ORDER BY iv DESC, v)", order_by=("iv DESC",)),
        Case("string_agg", ("n", "';'"), order_by=("n DESC",), distinct=True),
        Case("string_agg", ("v",), "string_agg(DISTINCT v ORDER BY v)", distinct=True, filter="n > 2"),
    ],
    "mode": [*rows_of("mode", f"mode({ORDERED})"), Case("mode", ("n",), "mode(n ORDER BY n DESC)", order_by=("n DESC",))],
    "lttb": [Case("lttb", ("d", "fl", "4"), "lttb(d, fl, 4 ORDER BY d, fl)")],
    "json_group_array": [
        Case("json_group_array", (c,), f"to_json(list({c} ORDER BY {c} ASC NULLS LAST))") for c in ("n", "v", "m", "st", "js")
    ],
    "json_group_structure": [Case("json_group_structure", ("st",)), Case("json_group_structure", ("n",))],
    "json_group_object": [
        Case("json_group_object", ("z", "n"),
             "CAST('{' || string_agg('\"' || z || '\":' || coalesce(n::VARCHAR, 'null'), ',' ORDER BY z, n) || '}' AS JSON)")
    ],
}  # fmt: skip
APPROXIMATE = {"approx_quantile", "approx_top_k"}


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    columns = ", ".join(f"if(g = 0, NULL, {sql}) AS {name}" for name, sql in COLUMNS.items())
    connection.execute(
        f"CREATE TABLE t AS SELECT g, r, z, {columns}"
        f" FROM (SELECT r, r % 5 AS g, (hash(r) % 1000)::BIGINT AS z FROM range({ROWS}) x(r))"
    )
    yield connection
    connection.close()


@dataclass
class Trip:
    """Tables on their way through Arrow and Parquet, as segments go."""

    db: duckdb.DuckDBPyConnection
    folder: Path
    count: int = field(default=0)

    def take(self, columns: list[tuple[str, str]], sql: str) -> str:
        """Write the rows of a query as a segment, and return the SELECT that reads it."""
        declared = [Column(name, type_) for name, type_ in columns]
        table = self.db.sql(encoded(declared, f"({sql})")).to_arrow_table()
        check_encoded(declared, table.schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        self.count += 1
        path = self.folder / f"{self.count}.parquet"
        pq.write_table(pa.ipc.open_stream(sink.getvalue()).read_all(), path, compression="lz4", use_dictionary=False)
        names = ", ".join(f"CAST({name} AS {type_}) AS {name}" for name, type_ in columns)
        return f"SELECT {names} FROM read_parquet('{path}')"


@pytest.fixture
def trip(db: duckdb.DuckDBPyConnection, tmp_path: Path) -> Trip:
    return Trip(db, tmp_path)


def bind(db: duckdb.DuckDBPyConnection, case: Case) -> AggregateCall:
    """Ask DuckDB for the types, as the binder does."""
    keys = [key.lower().split(" ")[0] for key in case.order_by]
    texts = [*case.arguments, *keys]
    types = db.sql(f"SELECT {', '.join(f'typeof({t})' for t in texts) or 'NULL'} FROM t LIMIT 1").fetchall()[0]
    result = db.sql(f"SELECT typeof({case.sql}) FROM t").fetchall()[0][0]
    count = len(case.arguments)
    return AggregateCall(
        case.function, case.arguments, types[:count], case.distinct, case.order_by, case.filter, result, types[count:]
    )


def batches(seed: str) -> list[str]:
    """The rows of t in a random order, split into one to five parts, some perhaps empty."""
    rng = random.Random(seed)
    count = rng.randint(2, 5)
    salt = rng.randint(0, 10**6)
    return [
        f"(SELECT * FROM t WHERE hash(r + {salt}) % {count} = {i} ORDER BY hash(r * 7 + {salt}))" for i in range(count)
    ]


G = ("g", "BIGINT")


def run_partials(trip: Trip, calls: list[AggregateCall], split: list[str]) -> list[tuple[Any, ...]]:
    """Partials per part, merged once for some of the parts, and then all together."""
    made = partials(calls, "p")
    found = {c[0]: (c, p, m) for one in made for c, p, m in zip(one.columns, one.partial, one.merge, strict=True)}
    columns = [G, *(column for column, _, _ in found.values())]
    partial_list = ", ".join(f"{p} AS {name}" for name, (_, p, _) in found.items())
    merge_list = ", ".join(f"{m} AS {name}" for name, (_, _, m) in found.items())
    segments = [trip.take(columns, f"SELECT g, {partial_list} FROM {rows} GROUP BY g") for rows in split]
    some, rest = segments[: len(segments) // 2 + 1], segments[len(segments) // 2 + 1 :]
    once = trip.take(columns, f"SELECT g, {merge_list} FROM ({' UNION ALL '.join(reversed(some))}) GROUP BY g")
    # rows of another table, as an operator may union them, must not count
    others = "SELECT DISTINCT g FROM t"
    union = f"{' UNION ALL '.join([*rest, once])} UNION ALL BY NAME {others}"
    finals = ", ".join(f"{one.final} AS f{i}" for i, one in enumerate(made))
    types = ", ".join(f"typeof(f{i})" for i in range(len(made)))
    merged = f"SELECT g, {merge_list} FROM ({union}) GROUP BY g"
    return trip.db.sql(f"SELECT *, {types} FROM (SELECT g, {finals} FROM ({merged})) ORDER BY g").fetchall()


def run_values(trip: Trip, call: AggregateCall, split: list[str]) -> list[tuple[Any, ...]]:
    """The kept rows of every part, de-duplicated where that is allowed, then aggregated per group."""
    kept = values(call, "x_", "_part = 1")
    assert values(call, "x_").columns == kept.columns
    columns = [G, *kept.columns]
    collect = ", ".join(f"{sql} AS {name}" for (name, _), sql in zip(kept.columns, kept.collect, strict=True))
    unique = "DISTINCT " if kept.distinct else ""
    where = kept.filter or "true"
    segments = [trip.take(columns, f"SELECT {unique}g, {collect} FROM {rows} WHERE {where}") for rows in split]
    rows = f"SELECT {unique}*, 1 AS _part FROM ({' UNION ALL '.join(segments)})"
    result = f"SELECT g, {kept.final} AS f FROM ({rows} UNION ALL BY NAME SELECT DISTINCT g FROM t) GROUP BY g"
    return trip.db.sql(f"SELECT *, typeof(f) FROM ({result}) ORDER BY g").fetchall()


def near(value: Any) -> Any:
    if isinstance(value, float):
        return pytest.approx(value, rel=1e-9, abs=1e-9, nan_ok=True)
    if isinstance(value, list):
        return [near(v) for v in value]
    if isinstance(value, dict):
        return {k: near(v) for k, v in value.items()}
    return value


@pytest.mark.parametrize("function", sorted(set(FUNCTIONS) - APPROXIMATE))
def test_agrees_with_a_single_pass(trip: Trip, function: str) -> None:
    cases = CASES[function]
    calls = [bind(trip.db, case) for case in cases]
    assert [reason(call) for call in calls] == [""] * len(calls)
    expressions = ", ".join(case.sql for case in cases)
    types = ", ".join(f"typeof({case.sql})" for case in cases)
    expected = trip.db.sql(f"SELECT g, {expressions}, {types} FROM t GROUP BY g ORDER BY g").fetchall()
    merging = [i for i, call in enumerate(calls) if strategy(call) is not Strategy.VALUES]
    got: dict[int, list[tuple[Any, Any, Any]]] = {}
    if merging:
        rows = run_partials(trip, [calls[i] for i in merging], batches(function))
        for k, i in enumerate(merging):
            got[i] = [(row[0], row[1 + k], row[1 + len(merging) + k]) for row in rows]
    for i, call in enumerate(calls):
        result = got[i] if i in got else run_values(trip, call, batches(f"{function}{i}"))
        wanted = [(row[0], near(row[1 + i]), row[1 + len(calls) + i]) for row in expected]
        assert result == wanted, cases[i]


@pytest.mark.parametrize("function", sorted(set(FUNCTIONS) - APPROXIMATE))
def test_no_rows(trip: Trip, function: str) -> None:
    """Partials of no rows, and merging no partials at all."""
    cases = CASES[function]
    pairs = [(call, case) for case in cases if strategy(call := bind(trip.db, case)) is not Strategy.VALUES]
    if not pairs:
        return
    made = partials([call for call, _ in pairs], "p")
    found = {c[0]: (p, m) for one in made for c, p, m in zip(one.columns, one.partial, one.merge, strict=True)}
    partial_list = ", ".join(f"{p} AS {name}" for name, (p, _) in found.items())
    merge_list = ", ".join(f"{m} AS {name}" for name, (_, m) in found.items())
    finals = ", ".join(one.final for one in made)
    expected = trip.db.sql(f"SELECT {', '.join(case.sql for _, case in pairs)} FROM t WHERE false").fetchall()
    for rows in (f"SELECT {partial_list} FROM t WHERE false", f"FROM (SELECT {partial_list} FROM t) WHERE false"):
        assert trip.db.sql(f"SELECT {finals} FROM (SELECT {merge_list} FROM ({rows}))").fetchall() == expected


def test_approximate_quantile(trip: Trip) -> None:
    """A sketch merges to within its error, and to the same digits for any order of the partials."""
    cases = [
        Case("approx_quantile", ("b", "0.5")),
        Case("approx_quantile", ("m", "[0.1, 0.9]")),
        Case("approx_quantile", ("ub", "0.9"), filter="n > 2"),
        Case("approx_quantile", ("d", "0.5"), distinct=True),
    ]
    calls = [bind(trip.db, case) for case in cases]
    ranks = [f"quantile_disc({c.arguments[0]}, {c.arguments[1]}){c._filter}" for c in cases]
    exact = trip.db.sql(f"SELECT g, {', '.join(ranks[:3])} FROM t GROUP BY g ORDER BY g").fetchall()
    split = batches("quantile")
    got = run_partials(trip, calls[:3], split)
    assert got == run_partials(trip, calls[:3], split)
    for (_, b, m, ub, *types), (_, b_exact, m_exact, ub_exact) in zip(got, exact, strict=True):
        assert types == ["BIGINT", "DECIMAL(10,2)[]", "HUGEINT"]
        assert b == pytest.approx(b_exact, abs=8) or b is b_exact is None
        assert ub == pytest.approx(ub_exact, abs=2) or ub is ub_exact is None
        assert m is m_exact or [float(v) for v in m] == pytest.approx([float(v) for v in m_exact], abs=3)
    assert strategy(calls[3]) is Strategy.VALUES


def test_approximate_top_k(trip: Trip) -> None:
    """What is clearly most frequent is found; a struct comes back as one."""
    often = "{'a': if(z % 3 > 0, 7, z % 5), 'b': if(g > 0, 'x', NULL)}"
    calls = [bind(trip.db, Case("approx_top_k", (often, "1"))), bind(trip.db, Case("approx_top_k", ("en", "2")))]
    split = batches("top")
    got = run_partials(trip, calls, split)
    assert got == run_partials(trip, calls, split)
    assert [row[1] for row in got[1:]] == [[{"a": 7, "b": "x"}]] * 4
    assert [row[2] is None for row in got] == [True, False, False, False, False]
    assert {row[3:] for row in got} == {("STRUCT(a BIGINT, b VARCHAR)[]", "ENUM('low', 'mid', 'high')[]")}


def test_every_aggregate_of_duckdb_is_decided(db: duckdb.DuckDBPyConnection) -> None:
    """A new version of DuckDB with a new aggregate, or with another alias, shows up here."""
    rows = db.sql("SELECT DISTINCT function_name, alias_of FROM duckdb_functions() WHERE function_type = 'aggregate'")
    found = dict(rows.fetchall())
    assert {ALIASES.get(name, name) for name in found} <= FUNCTIONS.keys() | REFUSED.keys()
    ours = {"count_star": "count", "arbitrary": "any_value"}
    assert {n: a for n, a in ALIASES.items() if n in found} == {n: a for n, a in found.items() if a} | ours
    macros = {"geomean", "geometric_mean", "weighted_avg", "wavg"}
    macros |= {"json_group_array", "json_group_object", "json_group_structure", "variant_group_array"}
    flink = {"collect", "json_arrayagg", "json_objectagg", "first_value", "last_value"}
    flink |= {"percentile", "percentile_cont", "percentile_disc"}
    assert (FUNCTIONS.keys() | REFUSED.keys() | ALIASES.keys()) - found.keys() == macros | flink
    assert CASES.keys() | APPROXIMATE == FUNCTIONS.keys()
    # the aggregates among the macros are the ones we know
    rows = db.sql("SELECT function_name, macro_definition FROM duckdb_functions() WHERE function_type = 'macro'")
    aggregating = {
        name for name, text in rows.fetchall() if any(f"{f}(" in text.replace('"', "") for f in ("avg", "sum", "string_agg"))
    }  # fmt: skip
    assert aggregating - {"list_avg", "list_sum", "list_string_agg"} <= macros | FUNCTIONS.keys()


def call_of(function: str, *arguments: str, type: str = "BIGINT", result: str = "BIGINT", **more: Any) -> AggregateCall:
    return AggregateCall(function, arguments, (type,) * len(arguments), result_type=result, **more)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (call_of("frobnicate", "x"), "there is no incremental form of the aggregate frobnicate"),
        (call_of("reservoir_quantile", "x", "0.5"), REFUSED["reservoir_quantile"]),
        (call_of("collect", "x"), REFUSED["collect"]),
        (
            call_of("first_value", "x"),
            "rows of a stream have no order; write first(x ORDER BY ts) or arg_min(x, ts)",
        ),
        (call_of("max", "x", "y"), "the number of values that max returns must be a positive integer literal"),
        (call_of("bitstring_agg", "x", result="BIT"), "bitstring_agg needs its bounds; write bitstring_agg(x, min, max)"),
        (call_of("max", "x", type="VARIANT", result="VARIANT"), "VARIANT values cannot be kept in state"),
        (call_of("list", "x", type="UNION(a INTEGER)"), "UNION values cannot be kept in state"),
        (
            call_of("min", "NULL", type='"NULL"', result='"NULL"'),
            "a value that is always NULL has no type; write CAST(NULL AS INTEGER)",
        ),
        (call_of("geomean", "x", distinct=True), "geomean does not take DISTINCT"),
        (
            call_of("list", "x", distinct=True, order_by=("y",), order_types=("INTEGER",)),
            "in a DISTINCT aggregate, ORDER BY can only name its arguments",
        ),
        (
            call_of("quantile_cont", "x", "0.5", order_by=("y DESC",), order_types=("INTEGER",)),
            "quantile_cont can only be ordered by its argument",
        ),
    ],
)  # fmt: skip
def test_refuses(call: AggregateCall, why: str) -> None:
    assert strategy(call) is None
    assert reason(call) == why
    with pytest.raises(Refused, match="^" + re.escape(why) + "$"):
        partial(call, "p")


def test_every_refusal_is_an_aggregate() -> None:
    for name in (*FUNCTIONS, *ALIASES, *REFUSED):
        assert is_aggregate(name.upper())
    assert not is_aggregate("abs")
    assert ALIASES.keys().isdisjoint(FUNCTIONS.keys() | REFUSED.keys())
    assert set(ALIASES.values()) <= FUNCTIONS.keys()
    for name in REFUSED:
        assert strategy(call_of(name, "x")) is None


def test_calls_share_columns() -> None:
    """A sum, a count and an average need two columns; all quantiles of x need one, and all second moments."""
    calls = [
        call_of("sum", "x", result="HUGEINT"),
        call_of("count", "x"),
        call_of("avg", "x", result="DOUBLE"),
        *(call_of("quantile_cont", "x", q, result="DOUBLE") for q in ("0.5", "0.9", "0.99")),
        call_of("median", "x", result="DOUBLE"),
        *(call_of(f, "x", result="DOUBLE") for f in ("var_pop", "stddev_samp", "sem")),
        call_of("sum", "x", result="HUGEINT", filter="y > 1"),
    ]
    made = partials(calls, "p")
    assert [[name for name, _ in one.columns] for one in made] == [
        ["p_0"], ["p_1"], ["p_0", "p_1"], ["p_2"], ["p_2"], ["p_2"], ["p_2"], ["p_3"], ["p_3"], ["p_3"], ["p_4"]
    ]  # fmt: skip


def test_calls_share_values() -> None:
    first = values(call_of("count", "x", distinct=True))
    second = values(call_of("sum", "x", distinct=True, result="HUGEINT"))
    assert (first.columns, first.collect, first.filter, first.distinct) == (
        second.columns,
        second.collect,
        second.filter,
        second.distinct,
    )
    assert first.columns == (("v0", "BIGINT"),)
    assert first.distinct


def test_expressions_keep_their_precedence(trip: Trip) -> None:
    """Arguments are any expressions."""
    cases = [
        Case("arg_max", ("n = 1 OR n = 2", "n > 3 OR n < 2"), "max(n = 1 OR n = 2) FILTER (WHERE (n > 3 OR n < 2))"),
        Case("weighted_avg", ("n - 1", "n + 1")),
        Case("any_value", ("n = 1 OR n = 2",), "any_value(n = 1 OR n = 2 ORDER BY r)", order_by=("r",), filter="n = 1 OR n = 2"),
        Case("count", ("n + 1",), filter="n = 1 OR n = 2"),
    ]  # fmt: skip
    calls = [bind(trip.db, case) for case in cases]
    expected = trip.db.sql(f"SELECT g, {', '.join(c.sql for c in cases)} FROM t GROUP BY g ORDER BY g").fetchall()
    got = run_partials(trip, calls, batches("precedence"))
    assert [row[: len(cases) + 1] for row in got] == [tuple(map(near, row)) for row in expected]
