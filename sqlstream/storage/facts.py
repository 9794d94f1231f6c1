"""The numbers of a job's sources, operators and sinks: names, types, units and meanings, in one table for each of the three.

The tables list the columns of `sqlstream.watermarks`, `sqlstream.operators` and `sqlstream.sinks`. The metrics for Prometheus,
the numbers of `Job.progress`, lines of JSON, the texts about dropped rows, and the lists of the manual are made from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Fact:
    """A column of a system table, and its names elsewhere.

    `type` is DuckDB's. `exported` is the name of the metric, without `sqlstream_` and the ending of its type; it is a counter,
    unless `gauge` is set. `attribute` is the name in `Job.progress`, `total` the name of the sum over the job there and in lines
    of JSON, which repeat the sum under `older_total`, an earlier name. `loss` says what happened to the rows that are counted,
    where `{}` stands for "row" or "rows".
    """

    name: str
    type: str
    meaning: str
    unit: str = ""
    exported: str = ""
    gauge: bool = False
    attribute: str = ""
    total: str = ""
    older_total: str = ""
    loss: str = ""

    @property
    def is_count(self) -> bool:
        """Whether the log of a job and `Job.progress` have it, as a number under `name`."""
        return self.type == "BIGINT" and bool(self.exported)


def _count(name: str, unit: str, meaning: str, exported: str, total: str = "", **others: Any) -> Fact:
    return Fact(name, "BIGINT", meaning, unit, exported, attribute=name, total=total, **others)


# Columns keep their order: a new fact comes last.
SOURCE_FACTS = (
    Fact("max_event_time", "TIMESTAMP", "the event time of its newest row", attribute="newest_event_time"),
    Fact("watermark", "TIMESTAMP", "its own watermark, `infinity` after its end", attribute="watermark"),
    Fact(
        "holds_minimum",
        "BOOLEAN",
        "whether a watermark of the job waits for this source",
        exported="source_holds_watermark",
        gauge=True,
        attribute="holds_watermark",
    ),
    Fact("idle_since", "TIMESTAMPTZ", "since when it is idle", attribute="idle_since"),
    _count(
        "null_rows",
        "rows",
        "rows dropped because their event time is NULL",
        "source_null_time_rows",
        "null_rows",
        older_total="null_time_rows",
        loss="{} without a time dropped",
    ),
    Fact("holding_since", "TIMESTAMPTZ", "since when a watermark of the job waits for it"),
    _count(
        "malformed_rows",
        "rows",
        "rows that could not be read and were skipped",
        "source_malformed_rows",
        "malformed_rows",
        loss="malformed {} skipped",
    ),
    Fact("partition", "VARCHAR", "the partition that the row is about, NULL for the whole source"),
    _count(
        "lost_rows",
        "rows",
        "rows that were gone before they were read",
        "source_lost_rows",
        "lost_rows",
        loss="{} lost before being read",
    ),
    _count("rows", "rows", "rows read", "source_rows", "rows_in"),
    _count(
        "bytes",
        "bytes",
        "bytes read: files as they are stored; keys, values and headers of messages",
        "source_bytes",
        "bytes_in",
    ),
    Fact("operators", "VARCHAR[]", "the operators whose watermark waits for this source"),
)
OPERATOR_FACTS = (
    Fact("kind", "VARCHAR", "what it does"),
    Fact("key_columns", "VARCHAR[]", "the columns of its key"),
    _count("state_rows", "rows", "rows of state as they are stored", "state_rows", "state_rows", gauge=True),
    _count("state_bytes", "bytes", "bytes of the files of the state", "state_bytes", "state_bytes", gauge=True),
    _count("segments", "files", "files of the state", "state_segments", "segments", gauge=True),
    _count(
        "late_rows",
        "rows",
        "rows that came too late and were dropped",
        "operator_late_rows",
        "late_rows",
        loss="late {} dropped",
    ),
    Fact("bound", "VARCHAR", "what bounds its state"),
    _count(
        "missed_windows",
        "windows",
        "pairs of a row that still counted and a window of it that had closed already",
        "operator_missed_windows",
        "missed_windows",
    ),
    Fact(
        "open_windows",
        "BIGINT",
        "windows that are still open: each counts once, however many keys it has, but a session once for each key",
        "windows",
    ),
    Fact(
        "next_end",
        "TIMESTAMP",
        "the event time at which the next open window closes; a session may still grow",
        attribute="next_close",
    ),
    _count("expired_keys", "keys", "keys that a time to live has dropped", "operator_expired_keys", "expired_keys"),
    _count(
        "returned_keys",
        "keys",
        "keys that came back after they had been dropped",
        "operator_returned_keys",
        "returned_keys",
    ),
    _count(
        "absent_deletes", "rows", "deletions of rows that were not there", "operator_absent_deletes", "absent_deletes"
    ),
    Fact(
        "counters",
        "MAP(VARCHAR, BIGINT)",
        "counters of process functions",
        exported="user_counter",
        attribute="counters",
    ),
    # Without a sum: what one operator emits the next one may read.
    _count("rows_out", "rows", "rows (changes) that it has emitted, before filters behind it", "operator_rows_out"),
    Fact(
        "watermark",
        "TIMESTAMP",
        "its watermark, the least of the sources that it waits for, or the clock; NULL if it reads no time",
        attribute="watermark",
    ),
    Fact("waits_for", "VARCHAR[]", "the sources for whose watermarks it waits, or `the clock`", attribute="waits_for"),
)
SINK_FACTS = (
    _count("rows", "rows", "rows (changes) written into a table", "sink_rows", "rows_out"),
    _count(
        "bytes", "bytes", "bytes of Parquet written into a table or handed to its connector", "sink_bytes", "bytes_out"
    ),
)
# By the attribute of `Job.progress` that has them.
FACTS: Mapping[str, tuple[Fact, ...]] = {
    "sources": SOURCE_FACTS,
    "operators": OPERATOR_FACTS,
    "sinks": SINK_FACTS,
}


def counts(facts: Sequence[Fact]) -> Iterator[Fact]:
    """Yield the facts that are counts.

    >>> [fact.name for fact in counts(SINK_FACTS)]
    ['rows', 'bytes']
    """
    return (fact for fact in facts if fact.is_count)


def count_values(facts: Sequence[Fact], metrics: object) -> dict[str, Any]:
    """Return the counts of a source, an operator or a sink by name; `metrics` has them as attributes."""
    return {fact.name: getattr(metrics, fact.name) for fact in counts(facts)}


def column_types(facts: Sequence[Fact]) -> dict[str, str]:
    """Return the types of the columns by name."""
    return {fact.name: fact.type for fact in facts}
