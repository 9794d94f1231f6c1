"""Calls of every aggregate that is allowed, and the rows that they are called over."""

from __future__ import annotations

from dataclasses import dataclass

from sqlstream.duck.aggregates.functions import FUNCTIONS
from sqlstream.duck.internal_columns import ARRIVED
from sqlstream.duck.sql import quote_name

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
# The order of arrival, which is no order of any other column.
PLACE = quote_name(ARRIVED.name)


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
    """Without ORDER BY the least or greatest value, with it the row that it names, such as the one that came first."""
    name = function.removesuffix("_value") if function != "any_value" else function
    arrived = [
        Case(function, (v,), f"{name}({v} ORDER BY {order})", order_by=(order,), filter=f)
        for v, order, f in (
            *((v, PLACE, None) for v in ALL),
            ("v", f"{PLACE} DESC", None),
            ("n", PLACE, "n > 2"),
            ("iv", f"{PLACE} DESC", "n > 2"),
        )
    ]
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
    way = "max" if function.startswith("last") else "min"
    return [*arrived, *ordered, *(Case(function, (c,), f"{way}({c})") for c in ALL)]


def some(function: str) -> list[Case]:
    """The first or last three values by arrival; without it the least or greatest ones."""
    first = function == "earliest_by_offset"
    part, least = (":3", "min({}, 3)") if first else ("-3:", "list_reverse(max({}, 3))")
    cases = [Case(function, (c, "3"), f"list({c} ORDER BY {PLACE})[{part}]", order_by=(PLACE,)) for c in ALL]
    return [*cases, *(Case(function, (c, "3"), least.format(c)) for c in ("b", "d", "v", "st", "iv", "en"))]


def args(function: str) -> list[Case]:
    """Ties go to the row that came first, or to the extreme value: the expected SQL orders by the key and then by that."""
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
        for order in (PLACE, f"{PLACE} DESC"):
            cases.append(
                Case(function, (value, key), f"{function}({value}, {key} ORDER BY {order})", order_by=(order,))
            )
            if kind != "_null":
                best = f"{key} {direction} NULLS LAST, {order}"
                expected = f"list({value} ORDER BY {best}) FILTER (WHERE {skipped})[:3]"
                cases.append(Case(function, (value, key, "3"), expected, order_by=(order,)))
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
    **{f: some(f) for f in ("earliest_by_offset", "latest_by_offset")},
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
        Case("list", ("v",), order_by=(PLACE,)),
        Case("list", ("n",), order_by=("ts DESC", f"{PLACE} DESC"), filter="n > 2"),
        Case("list", ("v",), order_by=("v DESC NULLS FIRST",), distinct=True),
        Case("list", ("en",), "list(DISTINCT en ORDER BY en)", distinct=True),
    ],
    "string_agg": [
        *rows_of("string_agg", f"string_agg({ORDERED})"),
        Case("string_agg", ("v", "' | '"), "string_agg(v, ' | ' ORDER BY iv DESC, v)", order_by=("iv DESC",)),
        Case("string_agg", ("v", "';'"), order_by=(PLACE,)),
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
