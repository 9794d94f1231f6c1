"""The clock of a query: DuckDB would take its own, a repeated batch must see the same one."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlglot import exp

NOW_VARIABLE, WATERMARK_VARIABLE = "_now", "_watermark"
NOW = f"CAST(getvariable('{NOW_VARIABLE}') AS TIMESTAMP WITH TIME ZONE)"
# The job's watermark before the batch, NULL while there is none; event times are on the scale of TIMESTAMP.
WATERMARK = f"getvariable('{WATERMARK_VARIABLE}')"
# PROCTIME() itself, as it is written once it is bound; an alias of the select list is put in with parentheses.
_BATCH_TIME = re.compile(
    r"\(*CAST\(getvariable\('_now'\) AS (TIMESTAMP WITH TIME ZONE|TIMESTAMPTZ)\)\)*", re.IGNORECASE
)
_VARIABLE = re.compile(r"getvariable\('(_now|_watermark)'\)", re.IGNORECASE)
# No time of a row; the watermark at the end of the input.
_END = 2**63 - 1
# What the functions that tell the time mean, by name.
CLOCKS = {
    **dict.fromkeys(("now", "proctime", "current_timestamp", "get_current_timestamp", "transaction_timestamp"), NOW),
    **dict.fromkeys(("current_row_timestamp",), NOW),
    **dict.fromkeys(("current_date", "today"), f"CAST({NOW} AS DATE)"),
    **dict.fromkeys(("localtimestamp",), f"CAST({NOW} AS TIMESTAMP)"),
    **dict.fromkeys(("current_time", "get_current_time"), f"CAST({NOW} AS TIME WITH TIME ZONE)"),
    **dict.fromkeys(("localtime",), f"CAST(CAST({NOW} AS TIMESTAMP) AS TIME)"),
}
CLOCK_NODES: dict[type[exp.Expr], str] = {
    exp.CurrentTimestamp: "current_timestamp",
    exp.CurrentDate: "current_date",
    exp.CurrentTime: "current_time",
    exp.Localtimestamp: "localtimestamp",
    exp.Localtime: "localtime",
}


def variables(time: int, watermark: int | None) -> Mapping[str, str]:
    """Return the values of the variables as SQL: a processing time in milliseconds, a watermark in microseconds."""
    if watermark is None:
        reached = "CAST(NULL AS TIMESTAMP)"
    elif watermark == _END:
        reached = "CAST('infinity' AS TIMESTAMP)"
    else:
        reached = f"make_timestamp({watermark})"
    return {"_now": f"make_timestamptz({time * 1000})", "_watermark": reached}


def fixed(sql: str, time: int, watermark: int | None) -> str:
    """Return SQL with values in the place of the variables.

    >>> fixed("f(GETVARIABLE('_now'))", 5, None)
    'f(make_timestamptz(5000))'
    """
    values = variables(time, watermark)
    return _VARIABLE.sub(lambda found: values[found[1].lower()], sql)


def uses_clock(sql: str) -> bool:
    """Tell whether SQL depends on the batch's time or watermark."""
    return _VARIABLE.search(sql) is not None


def is_batch_time(sql: str) -> bool:
    """Tell whether SQL is the batch's time itself.

    >>> is_batch_time(NOW), is_batch_time(f"({NOW})"), is_batch_time(CLOCKS["current_date"])
    (True, True, False)
    """
    return _BATCH_TIME.fullmatch(sql) is not None


def asks_watermark(sql: str) -> bool:
    """Tell whether SQL depends on the watermark."""
    return any(found.lower() == "_watermark" for found in _VARIABLE.findall(sql))


def variables_in(bound: exp.Expr) -> set[str]:
    """Return the names of the clock's variables that a bound expression asks for: nobody else asks for a variable."""
    calls = (call for call in bound.find_all(exp.Anonymous) if call.name.lower() == "getvariable")
    return {call.expressions[0].name for call in calls}


def is_now(bound: exp.Expr) -> bool:
    """Tell whether a bound expression is the batch's time itself."""
    # Everything that is made of it has this cast inside.
    inner = bound.this if isinstance(bound, exp.Cast) else None
    return isinstance(inner, exp.Anonymous) and variables_in(inner) == {NOW_VARIABLE}
