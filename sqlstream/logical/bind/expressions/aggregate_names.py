"""Names of aggregates that DuckDB does not have as aggregates: Flink's and ksqlDB's."""

from __future__ import annotations

from collections.abc import Mapping

# The names, and those of DuckDB's functions of the same meaning.
RENAMED: Mapping[str, str] = {"first_value": "first", "last_value": "last", "collect_list": "list"}
# Those that ignore NULLs in Flink unless RESPECT NULLS follows.
IGNORING = frozenset({"first_value", "last_value"})
# Of ksqlDB's functions, those that with a number of values return a list; without it they are functions of DuckDB's.
BY_OFFSET: Mapping[str, str] = {"earliest_by_offset": "first", "latest_by_offset": "last"}
# Flink's that are composed of others: see `aggregates.composed`.
COMPOSED = frozenset({"collect", "json_arrayagg", "json_objectagg", "percentile"})
OTHER_AGGREGATES = frozenset({*RENAMED, *BY_OFFSET, *COMPOSED})
