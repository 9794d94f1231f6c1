"""The clock of a batch, as variables of DuckDB: a batch that runs again must see the same time, and not DuckDB's clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlstream.units import END_OF_INPUT, NO_TIME, Duration, EventTime, ProcessingTime

NOW_VARIABLE, WATERMARK_VARIABLE = "_now", "_watermark"
NOW = f"CAST(getvariable('{NOW_VARIABLE}') AS TIMESTAMP WITH TIME ZONE)"
# The job's watermark before the batch, a TIMESTAMP; NULL while there is none.
WATERMARK = f"getvariable('{WATERMARK_VARIABLE}')"
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
    """Return the variables NOW_VARIABLE and WATERMARK_VARIABLE with their values as SQL; no watermark is NULL."""
    if watermark is None:
        reached = "CAST(NULL AS TIMESTAMP)"
    elif watermark == END_OF_INPUT:
        reached = "CAST('infinity' AS TIMESTAMP)"
    else:
        reached = f"make_timestamp({watermark})"
    return {"_now": f"make_timestamptz({time})", "_watermark": reached}


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
