"""Times in the names of indexes and in ids, as Flink's connector writes them: by patterns of Java, or as `toString` does."""

from __future__ import annotations

from sqlstream.catalog import Column
from sqlstream.duck.sql import quote_name, quote_text
from sqlstream.java_patterns import formatted

# Flink's patterns where the name of an index has none for a column.
DEFAULTS = {
    "DATE": "yyyy_MM_dd",
    "TIME": "HH_mm_ss",
    "TIMESTAMP": "yyyy_MM_dd_HH_mm_ss",
    "TIMESTAMP WITH TIME ZONE": "yyyy_MM_dd_HH_mm_ssX",
}


def by_pattern(column: Column, pattern: str) -> str:
    """Return the SQL of a time as text by a pattern of Java, in UTC. Raises UntranslatablePattern."""
    return formatted(pattern, _timestamp(column), None)


def as_java(column: Column) -> str | None:
    """Return the SQL of the text that Java's `toString` gives a time; None for a column of another type."""
    match column.type:
        case "TIMESTAMP":
            return _in_groups(_timestamp(column), "%Y-%m-%dT", "%H:%M")
        case "TIME":
            return _in_groups(_timestamp(column), "", "%H:%M")
        case "TIMESTAMP WITH TIME ZONE":
            return f"({_in_groups(_timestamp(column), '%Y-%m-%dT', '%H:%M:%S')} || 'Z')"
    return None


def _timestamp(column: Column) -> str:
    """Return the SQL of a time as a TIMESTAMP, in UTC if it has a zone."""
    name = quote_name(column.name)
    match column.type:
        case "TIME":
            return f"(DATE '1970-01-01' + {name})"
        case "TIMESTAMP WITH TIME ZONE":
            return f"({name} AT TIME ZONE 'UTC')"
    return f"CAST({name} AS TIMESTAMP)"


def _in_groups(time: str, day: str, shortest: str) -> str:
    """Return the SQL of the text of a TIMESTAMP: `shortest` without seconds, and three or six digits of a fraction."""
    microseconds = f"date_part('microsecond', {time})"
    patterns = (
        (f"{microseconds} = 0", shortest),
        (f"{microseconds} % 1000000 = 0", "%H:%M:%S"),
        (f"{microseconds} % 1000 = 0", "%H:%M:%S.%g"),
        ("true", "%H:%M:%S.%f"),
    )
    cases = (f"WHEN {condition} THEN strftime({time}, {quote_text(day + pattern)})" for condition, pattern in patterns)
    return f"CASE {' '.join(cases)} END"
