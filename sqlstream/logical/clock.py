"""The clock of a query: DuckDB would take its own, a repeated batch must see the same one."""

from __future__ import annotations

from sqlglot import exp

NOW = "CAST(getvariable('_now') AS TIMESTAMP WITH TIME ZONE)"
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
