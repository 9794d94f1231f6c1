"""Every aggregate that is allowed, against DuckDB's single pass over the same rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sqlstream.catalog import Column
from sqlstream.duck.aggregates.aggregate_call import AggregateCall
from sqlstream.duck.aggregates.calls import partials, reason, strategy, values
from sqlstream.duck.aggregates.functions import ALIASES, FUNCTIONS, REFUSED
from sqlstream.duck.aggregates.partial_columns import Strategy
from sqlstream.duck.sql import Relation
from sqlstream.duck.types import check_encoded, encoded
from tests.duck.aggregates.cases import APPROXIMATE, CASES, COLUMNS, PLACE, ROWS, Case

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    columns = ", ".join(f"if(g = 0, NULL, {sql}) AS {name}" for name, sql in COLUMNS.items())
    connection.execute(
        f"CREATE TABLE t AS SELECT g, r, z, r * 7919 % 10007 AS {PLACE}, {columns}"
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
        table = self.db.sql(encoded(declared, Relation(f"({sql})"))).to_arrow_table()
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


@pytest.mark.one_in(3)
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


@pytest.mark.one_in(3)
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
    flink = {"first_value", "last_value", "percentile", "percentile_cont", "percentile_disc"}
    ksqldb = {"earliest_by_offset", "latest_by_offset"}
    assert (FUNCTIONS.keys() | REFUSED.keys() | ALIASES.keys()) - found.keys() == macros | flink | ksqldb
    assert CASES.keys() | APPROXIMATE == FUNCTIONS.keys()
    # the aggregates among the macros are the ones we know
    rows = db.sql("SELECT function_name, macro_definition FROM duckdb_functions() WHERE function_type = 'macro'")
    aggregating = {
        name for name, text in rows.fetchall() if any(f"{f}(" in text.replace('"', "") for f in ("avg", "sum", "string_agg"))
    }  # fmt: skip
    assert aggregating - {"list_avg", "list_sum", "list_string_agg"} <= macros | FUNCTIONS.keys()


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
