"""The clock of a query: DuckDB would take its own, a repeated batch must see the same one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlstream.units import END_OF_INPUT, NO_TIME, Duration, EventTime, ProcessingTime

NOW_VARIABLE, WATERMARK_VARIABLE = "_now", "_watermark"
NOW = f"CAST(getvariable('{NOW_VARIABLE}') AS TIMESTAMP WITH TIME ZONE)"
# The job's watermark before the batch, NULL while there is none; event times are on the scale of TIMESTAMP.
WATERMARK = f"getvariable('{WATERMARK_VARIABLE}')"
# Earlier than any event time; its opposite is later.
NEVER: Final = EventTime(-(2**62))
# What the functions that tell the time mean, by name.
CLOCKS = {
    **dict.fromkeys(("now", "proctime", "current_timestamp", "get_current_timestamp", "transaction_timestamp"), NOW),
    **dict.fromkeys(("current_row_timestamp",), NOW),
    **dict.fromkeys(("current_date", "today"), f"CAST({NOW} AS DATE)"),
    **dict.fromkeys(("localtimestamp",), f"CAST({NOW} AS TIMESTAMP)"),
    **dict.fromkeys(("current_time", "get_current_time"), f"CAST({NOW} AS TIME WITH TIME ZONE)"),
    **dict.fromkeys(("localtime",), f"CAST(CAST({NOW} AS TIMESTAMP) AS TIME)"),
}


def variables(time: ProcessingTime, watermark: EventTime | None) -> Mapping[str, str]:
    """Return the values of the variables as SQL."""
    if watermark is None:
        reached = "CAST(NULL AS TIMESTAMP)"
    elif watermark == END_OF_INPUT:
        reached = "CAST('infinity' AS TIMESTAMP)"
    else:
        reached = f"make_timestamp({watermark})"
    return {"_now": f"make_timestamptz({time})", "_watermark": reached}


def view_variables(time: ProcessingTime | None, watermark: EventTime | None) -> Mapping[str, str]:
    """Return the values, as SQL, of the variables that the SQL of a view asks for: one more than an operator."""
    values = dict(variables(time or ProcessingTime(0), watermark))
    if time is None:
        values[NOW_VARIABLE] = "CAST(NULL AS TIMESTAMP WITH TIME ZONE)"
    values["_reached"] = f"{NEVER if watermark is None else min(watermark, -NEVER)}::BIGINT"
    return values


def macro(schema: str, time: ProcessingTime | None, watermark: EventTime | None) -> str:
    """Return the statement that gives a schema a clock of its own; `schema` is SQL.

    DuckDB binds a view in the schema that the view is in: there `getvariable` is this macro, before it is DuckDB's function. So
    the SQL of a view asks for the same variables as that of an operator, and views of several versions tell different times.
    """
    values = view_variables(time, watermark)
    fields = ", ".join(f"'{name}': {value}" for name, value in values.items())
    return f"CREATE OR REPLACE MACRO {schema}.getvariable(name) AS struct_extract({{{fields}}}, name)"


def reached(delay: Duration = NO_TIME) -> str:
    """Return the SQL, for a view, of the watermark of an operator that is behind the job's: a number of microseconds.

    Before there is a watermark it is earlier than any event time; at the end of the input later, whatever the delay.
    """
    now = "getvariable('_reached')"
    return f"CASE WHEN {now} < {-NEVER} THEN {now} - {delay} ELSE {now} END" if delay else now
