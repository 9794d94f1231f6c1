"""The clock of a batch, as variables of DuckDB: a batch that runs again must see the same time, and not DuckDB's clock."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from sqlstream.duck.sql import Select
from sqlstream.units import END_OF_INPUT, NO_TIME, Duration, EventTime, ProcessingTime

NOW_VARIABLE, WATERMARK_VARIABLE, ABOVE_VARIABLE = "_now", "_watermark", "_watermark_above"
NOW = f"CAST(getvariable('{NOW_VARIABLE}') AS TIMESTAMP WITH TIME ZONE)"
# The watermark before the batch of the scan or operator whose rows are read, a TIMESTAMP; NULL while there is none.
WATERMARK = f"getvariable('{WATERMARK_VARIABLE}')"
# The same of the operator that reads what a fragment makes.
WATERMARK_ABOVE = f"getvariable('{ABOVE_VARIABLE}')"
# Earlier than any event time; -NEVER is later than any.
NEVER: Final = EventTime(-(2**62))
# The SQL of functions that read the clock, by name.
CLOCKS = {
    **dict.fromkeys(("now", "proctime", "current_timestamp", "get_current_timestamp", "transaction_timestamp"), NOW),
    **dict.fromkeys(("current_row_timestamp",), NOW),
    **dict.fromkeys(("current_date", "today"), f"CAST({NOW} AS DATE)"),
    **dict.fromkeys(("localtimestamp",), f"CAST({NOW} AS TIMESTAMP)"),
    **dict.fromkeys(("current_time", "get_current_time"), f"CAST({NOW} AS TIME WITH TIME ZONE)"),
    **dict.fromkeys(("localtime",), f"CAST(CAST({NOW} AS TIMESTAMP) AS TIME)"),
}


def variables(time: ProcessingTime, watermark: EventTime | None) -> Mapping[str, str]:
    """Return the variables NOW_VARIABLE and WATERMARK_VARIABLE with their values as SQL."""
    return {"_now": f"make_timestamptz({time})", "_watermark": timestamp(watermark)}


def timestamp(watermark: EventTime | None) -> str:
    """Return the SQL of a watermark as a TIMESTAMP; no watermark is NULL, and the end of the input is infinity."""
    if watermark is None:
        return "CAST(NULL AS TIMESTAMP)"
    return "CAST('infinity' AS TIMESTAMP)" if watermark == END_OF_INPUT else f"make_timestamp({watermark})"


def view_variables(time: ProcessingTime | None, watermark: EventTime | None) -> Mapping[str, str]:
    """Return the variables that the SQL of a state view reads, with their values as SQL.

    They are NOW_VARIABLE and WATERMARK_VARIABLE as in `variables`, where a `time` of None is NULL, and `_reached`, the watermark
    as a BIGINT (see `reached`).
    """
    values = dict(variables(time or ProcessingTime(0), watermark))
    if time is None:
        values[NOW_VARIABLE] = "CAST(NULL AS TIMESTAMP WITH TIME ZONE)"
    values["_reached"] = f"{NEVER if watermark is None else min(watermark, -NEVER)}::BIGINT"
    return values


def at_watermark(sql: Select, watermark: EventTime | None) -> Select:
    """Return the SQL of a state view with this watermark in place of the watermark of its schema's clock (see `macro`)."""
    values = view_variables(None, watermark)
    return Select(reading({name: values[name] for name in (WATERMARK_VARIABLE, "_reached")}, sql))


def reading(values: Mapping[str, str], sql: str) -> str:
    """Return SQL in which each `getvariable('<name>')`, in any case, is replaced by the SQL that `values` has for the name."""
    for name, value in values.items():
        sql = re.sub(rf"getvariable\('{name}'\)", value.replace("\\", r"\\"), sql, flags=re.IGNORECASE)
    return sql


def macro(schema: str, time: ProcessingTime | None, watermark: EventTime | None) -> str:
    """Return the statement that gives a schema its own clock: a macro with the name `getvariable`. `schema` is SQL.

    DuckDB resolves the names of a view in the view's schema, where the macro hides the function of that name. So views read the
    same variables as operators do, and views of different versions, in different schemas, have different clocks.
    """
    values = view_variables(time, watermark)
    fields = ", ".join(f"'{name}': {value}" for name, value in values.items())
    return f"CREATE OR REPLACE MACRO {schema}.getvariable(name) AS struct_extract({{{fields}}}, name)"


def reached(delay: Duration = NO_TIME) -> str:
    """Return the SQL, for a state view, of an operator's watermark, `delay` behind the job's: a BIGINT of microseconds.

    While there is no watermark it is earlier than any event time; at the end of the input it is later, whatever the delay.
    """
    now = "getvariable('_reached')"
    return f"CASE WHEN {now} < {-NEVER} THEN {now} - {delay} ELSE {now} END" if delay else now
