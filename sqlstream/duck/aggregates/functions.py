"""The aggregate functions that run incrementally, and how they do: data only, for DuckDB 2.0.0.

`FUNCTIONS` and `REFUSED` together name every aggregate of DuckDB (a test compares them with `duckdb_functions()`),
its aggregate macros, and aggregates of Flink and ksqlDB that DuckDB does not have. `builders` turns an entry into SQL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto


class Kind(Enum):
    """The kind of a function's partial result, and how partial results are merged."""

    COUNT = auto()  # a count; merged by adding
    COUNT_IF = auto()  # likewise, but NULL if there were no rows
    SUM = auto()  # a sum; merged by adding
    AVG = auto()  # a sum and a count
    GEOMEAN = auto()  # an average of logarithms
    WEIGHTED = auto()  # two sums
    FOLD = auto()  # the function itself, applied to its own results; with a count n: the n extreme values
    PICK = auto()  # one row: by ORDER BY, else by the value
    PICKS = auto()  # the first or the last n rows: by ORDER BY, else by the value
    ARG = auto()  # the row (with a count n: the n rows) with the extreme key
    BITSTRING = auto()  # a bit string; merged by OR
    STATE = auto()  # the state that EXPORT_STATE returns
    QUANTILE = auto()  # the list of values, which is the exported state of a quantile
    PYTHON = auto()  # the accumulator of a user's class that has `merge`
    VALUES = auto()  # the values themselves


@dataclass(frozen=True, slots=True)
class Shape:
    """How one function runs.

    `ordered`: the result can depend on the order of rows. `idempotent`: DISTINCT does not change the result.
    `constants`: positions of arguments that must be constant; they belong to the function, not to the rows.
    `empty`: the SQL of the result without a partial result.
    """

    kind: Kind
    ordered: bool = False
    idempotent: bool = False
    constants: tuple[int, ...] = ()
    empty: str = "NULL"


@dataclass(frozen=True, slots=True)
class State:
    """The exported state of a function: `type` is the type of `exporter(..) EXPORT_STATE`, `parameters` its signature.

    Functions with equal states have one exporter, so that calls over the same argument share a column; for the same purpose
    `constants`, if any, replace the constants of the call until its result is computed. `ordered`: the result depends on the
    order of merging, which is therefore fixed.
    """

    exporter: str
    parameters: tuple[str, ...]
    type: str
    constants: tuple[str, ...] = ()
    ordered: bool = False


_MOMENTS = "STRUCT(count UBIGINT, mean DOUBLE, dsquared DOUBLE)"
_COMOMENTS = "STRUCT(count UBIGINT, meanx DOUBLE, meany DOUBLE, co_moment DOUBLE)"
_CORR = f"STRUCT(cov_pop {_COMOMENTS}, dev_pop_x {_MOMENTS}, dev_pop_y {_MOMENTS})"
_SLOPE = f"STRUCT(cov_pop {_COMOMENTS}, var_pop {_MOMENTS})"
_KURTOSIS = "STRUCT(n UBIGINT, mean DOUBLE, m2 DOUBLE, m3 DOUBLE, m4 DOUBLE)"
_DIGEST = "STRUCT(count UBIGINT, min DOUBLE, max DOUBLE, centroids STRUCT(mean DOUBLE, weight DOUBLE)[])"
_X = ("DOUBLE",)
_YX = ("DOUBLE", "DOUBLE")

_STATES: dict[str, State] = {
    "corr": State("corr", _YX, _CORR),
    "covar_pop": State("covar_pop", _YX, _COMOMENTS),
    "covar_samp": State("covar_pop", _YX, _COMOMENTS),
    "favg": State("favg", _X, 'STRUCT(count UBIGINT, "value" DOUBLE, err DOUBLE)'),
    "kahan_sum": State("kahan_sum", _X, 'STRUCT("value" DOUBLE, err DOUBLE)'),
    "kurtosis": State("kurtosis", _X, _KURTOSIS),
    "kurtosis_pop": State("kurtosis", _X, _KURTOSIS),
    "regr_avgx": State("regr_avgx", _YX, "STRUCT(sum DOUBLE, count UBIGINT)"),
    "regr_avgy": State("regr_avgy", _YX, "STRUCT(sum DOUBLE, count UBIGINT)"),
    "regr_count": State("regr_count", _YX, "UBIGINT"),
    "regr_intercept": State(
        "regr_intercept", _YX, f"STRUCT(count UBIGINT, sum_x DOUBLE, sum_y DOUBLE, slope {_SLOPE})"
    ),
    "regr_r2": State("regr_r2", _YX, f"STRUCT(corr {_CORR}, var_pop_x {_MOMENTS}, var_pop_y {_MOMENTS})"),
    "regr_slope": State("regr_slope", _YX, _SLOPE),
    "regr_sxx": State("regr_sxx", _YX, f"STRUCT(count UBIGINT, var_pop {_MOMENTS})"),
    "regr_sxy": State("regr_sxy", _YX, f"STRUCT(count UBIGINT, cov_pop {_COMOMENTS})"),
    "regr_syy": State("regr_syy", _YX, f"STRUCT(count UBIGINT, var_pop {_MOMENTS})"),
    "sem": State("var_pop", _X, _MOMENTS),
    "skewness": State("skewness", _X, "STRUCT(n UBIGINT, mean DOUBLE, m2 DOUBLE, m3 DOUBLE)"),
    "stddev_pop": State("var_pop", _X, _MOMENTS),
    "stddev_samp": State("var_pop", _X, _MOMENTS),
    "var_pop": State("var_pop", _X, _MOMENTS),
    "var_samp": State("var_pop", _X, _MOMENTS),
}


def _average_of_times(result: str) -> State:
    if result == "INTERVAL":
        return State("avg", (result,), 'STRUCT(count BIGINT, "value" INTERVAL)')
    return State("avg", (result,), 'STRUCT(count UBIGINT, "value" HUGEINT)')


# States that depend on the types of the call's first argument and of its result.
_TYPED_STATES: dict[str, Callable[[str, str], State]] = {
    "approx_count_distinct": lambda argument, _: State(
        "approx_count_distinct", (argument,), 'STRUCT("precision" UTINYINT, registers UTINYINT[])'
    ),
    "approx_quantile": lambda _, result: State(
        "approx_quantile", (result, "FLOAT"), _DIGEST, constants=("0.5",), ordered=True
    ),
    "approx_top_k": lambda argument, _: State(
        "approx_top_k",
        (argument, "BIGINT"),
        f'STRUCT(k UBIGINT, "values" STRUCT("value" {argument}, count UBIGINT)[], "filter" UBIGINT[])',
        ordered=True,
    ),
    "avg": lambda _, result: _average_of_times(result),
    "decimal_average": lambda argument, _: State("decimal_average", (argument,), "STRUCT(sum HUGEINT, count UBIGINT)"),
}


def state_of(function: str, argument: str, result: str) -> State:
    """Return the exported state of a function; `argument` and `result` are the types of its first argument and its result."""
    return _STATES[function] if function in _STATES else _TYPED_STATES[function](argument, result)


_ZERO = {"approx_count_distinct", "regr_count"}
_SECOND_IS_CONSTANT = {"approx_quantile", "approx_top_k"}

FUNCTIONS: dict[str, Shape] = {
    "count": Shape(Kind.COUNT, empty="0"),
    "count_if": Shape(Kind.COUNT_IF),
    "sum": Shape(Kind.SUM),
    "sum_no_overflow": Shape(Kind.SUM),
    "avg": Shape(Kind.AVG),
    "geomean": Shape(Kind.GEOMEAN),
    "weighted_avg": Shape(Kind.WEIGHTED),
    **dict.fromkeys(("min", "max"), Shape(Kind.FOLD, idempotent=True, constants=(1,))),
    **dict.fromkeys(("bool_and", "bool_or", "bit_and", "bit_or"), Shape(Kind.FOLD, idempotent=True)),
    **dict.fromkeys(("bit_xor", "product"), Shape(Kind.FOLD)),
    **dict.fromkeys(
        ("any_value", "first", "last", "first_value", "last_value"), Shape(Kind.PICK, ordered=True, idempotent=True)
    ),
    **dict.fromkeys(("earliest_by_offset", "latest_by_offset"), Shape(Kind.PICKS, ordered=True, constants=(1,))),
    **dict.fromkeys(
        ("arg_min", "arg_max", "arg_min_null", "arg_max_null", "arg_min_nulls_last", "arg_max_nulls_last"),
        Shape(Kind.ARG, ordered=True, idempotent=True, constants=(2,)),
    ),
    "bitstring_agg": Shape(Kind.BITSTRING, idempotent=True, constants=(1, 2)),
    **{
        name: Shape(
            Kind.STATE,
            idempotent=name == "approx_count_distinct",
            constants=(1,) if name in _SECOND_IS_CONSTANT else (),
            empty="0" if name in _ZERO else "NULL",
        )
        for name in (*_STATES, *_TYPED_STATES)
        if name != "avg"
    },
    **dict.fromkeys(("quantile_cont", "quantile_disc"), Shape(Kind.QUANTILE, ordered=True, constants=(1,))),
    **dict.fromkeys(("median", "mad"), Shape(Kind.QUANTILE)),
    "entropy": Shape(Kind.VALUES),
    **dict.fromkeys(("histogram", "histogram_exact"), Shape(Kind.VALUES, constants=(1,))),
    **dict.fromkeys(
        ("list", "mode", "json_group_array", "json_group_object", "json_group_structure"),
        Shape(Kind.VALUES, ordered=True),
    ),
    "lttb": Shape(Kind.VALUES, ordered=True, constants=(2,)),
    "string_agg": Shape(Kind.VALUES, ordered=True, constants=(1,)),
}

ALIASES: dict[str, str] = {
    # DuckDB's own; it takes `arbitrary` for `first`, but any value will do, and any_value says so
    "arbitrary": "any_value",
    "argmax": "arg_max",
    "argmin": "arg_min",
    "array_agg": "list",
    "count_star": "count",
    "countif": "count_if",
    "fsum": "kahan_sum",
    "geometric_mean": "geomean",
    "group_concat": "string_agg",
    "listagg": "string_agg",
    "max_by": "arg_max",
    "mean": "avg",
    "min_by": "arg_min",
    "quantile": "quantile_disc",
    "stddev": "stddev_samp",
    "sumkahan": "kahan_sum",
    "variance": "var_samp",
    "wavg": "weighted_avg",
    # the first two only WITHIN GROUP (ORDER BY x): a call with arguments (x, fraction) and order_by (x)
    "percentile_cont": "quantile_cont",
    "percentile_disc": "quantile_disc",
    "percentile": "quantile_cont",
}

REFUSED: dict[str, str] = {
    "combine_aggr": "combine_aggr works on exported aggregate states, which are not values of a stream",
    "reservoir_quantile": "reservoir_quantile draws a random sample, so that a replay could differ; "
    "write approx_quantile(x, q)",
    "variant_group_array": "values of type VARIANT cannot be kept in state; write json_group_array(x)",
    "variant_group_object": "values of type VARIANT cannot be kept in state; write json_group_object(key, value)",
}
