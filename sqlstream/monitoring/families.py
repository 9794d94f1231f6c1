"""The families of metrics of jobs: their names, types, labels and meanings. All are listed here.

The label with the name of a job is `job_name`, as in Flink: Prometheus uses the label `job` for its scrape jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

# The units in which sources count their backlog: `Discovery.backlog_unit`.
BACKLOG_UNITS = ("offsets", "files", "bytes", "batches", "partitions", "rows", "splits")
STATUSES = ("RUNNING", "RESTARTING", "FINISHED", "STOPPED", "DRAINED", "FAILED", "LOST")


@dataclass(frozen=True, slots=True)
class Family:
    """A family of metrics: its name without the ending for its type, its type (`kind`), its labels, and its meaning.

    A counter is exported with `_total`, a summary with `_sum` and `_count`.
    """

    name: str
    kind: Literal["counter", "gauge", "summary"]
    labels: tuple[str, ...]
    meaning: str

    @property
    def exported(self) -> tuple[str, ...]:
        """The names of its samples, as Prometheus sees them."""
        endings = {"counter": ("_total",), "gauge": ("",), "summary": ("_sum", "_count")}[self.kind]
        return tuple(f"sqlstream_{self.name}{ending}" for ending in endings)


_JOB, _SOURCE, _OPERATOR = ("job_name",), ("job_name", "source"), ("job_name", "operator")
_ALL = (
    Family("job_up", "gauge", _JOB, "1 while a process runs the job, else 0"),
    Family("job_status", "gauge", ("job_name", "status"), "1 for the status that the job has, 0 for the others"),
    Family("job_started_timestamp_seconds", "gauge", _JOB, "when the process of the job started"),
    Family("job_committed_timestamp_seconds", "gauge", _JOB, "the time of the last committed batch"),
    Family("job_committed_batch", "gauge", _JOB, "the number of the last committed batch, a version of the state"),
    Family("job_restarts", "counter", _JOB, "how often the job has started again after an outage"),
    Family("job_rows_in", "counter", _JOB, "rows read from all sources"),
    Family("job_rows_out", "counter", _JOB, "rows (changes) written into all tables"),
    Family(
        "job_watermark_lag_seconds",
        "gauge",
        _JOB,
        "by how much the watermark is behind the clock; not there before the first and after the end of the input",
    ),
    Family(
        "batch_duration_seconds",
        "summary",
        ("job_name", "phase"),
        "how long batches took: plan (what is to be read), process (read and compute), commit (sinks, results and log)",
    ),
    Family("source_rows", "counter", _SOURCE, "rows read"),
    Family(
        "source_bytes", "counter", _SOURCE, "bytes read: files as they are stored; keys, values and headers of messages"
    ),
    Family("source_malformed_rows", "counter", _SOURCE, "rows that could not be read and were skipped"),
    Family("source_null_time_rows", "counter", _SOURCE, "rows dropped because their event time is NULL"),
    Family("source_lost_rows", "counter", _SOURCE, "rows that were gone before they were read"),
    Family(
        "source_watermark_lag_seconds", "gauge", _SOURCE, "by how much the watermark of the source is behind the clock"
    ),
    Family(
        "source_holds_watermark", "gauge", _SOURCE, "1 where the watermark of the job waits for this source, else 0"
    ),
    Family(
        "source_event_latency_seconds",
        "gauge",
        _SOURCE,
        "from the newest event of the last batch with rows of the source until its results were ready",
    ),
    *(
        Family(f"source_backlog_{unit}", "gauge", _SOURCE, f"{unit} that the source has and no batch was given yet")
        for unit in BACKLOG_UNITS
    ),
    Family("sink_rows", "counter", ("job_name", "table"), "rows (changes) written into a table"),
    Family(
        "sink_bytes",
        "counter",
        ("job_name", "table"),
        "bytes of Parquet written into a table or handed to its connector",
    ),
    Family("state_rows", "gauge", _OPERATOR, "rows of state as they are stored"),
    Family("state_bytes", "gauge", _OPERATOR, "bytes of the files of the state"),
    Family("state_segments", "gauge", _OPERATOR, "files of the state"),
    Family("operator_rows_out", "counter", _OPERATOR, "rows (changes) that it has emitted, before filters behind it"),
    Family("operator_late_rows", "counter", _OPERATOR, "rows that came too late and were dropped"),
    Family(
        "operator_missed_windows",
        "counter",
        _OPERATOR,
        "pairs of a row that still counted and a window of it that had closed already",
    ),
    Family("operator_expired_keys", "counter", _OPERATOR, "keys that a time to live has dropped"),
    Family("operator_returned_keys", "counter", _OPERATOR, "keys that came back after they had been dropped"),
    Family("operator_absent_deletes", "counter", _OPERATOR, "deletions of rows that were not there"),
    Family("user_counter", "counter", ("job_name", "operator", "counter"), "counters of process functions"),
)
FAMILIES: Mapping[str, Family] = {family.name: family for family in _ALL}
EXPORTED: frozenset[str] = frozenset(name for family in _ALL for name in family.exported)
