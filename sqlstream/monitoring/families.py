"""The families of metrics of jobs: their names, types, labels and meanings. All are listed here and in `storage/facts.py`.

The label with the name of a job is `job_name`, as in Flink: Prometheus uses the label `job` for its scrape jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from sqlstream.storage.facts import OPERATOR_FACTS, SINK_FACTS, SOURCE_FACTS, Fact

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


_JOB, _SOURCE, _OPERATOR, _SINK = ("job_name",), ("job_name", "source"), ("job_name", "operator"), ("job_name", "table")


def _families(facts: tuple[Fact, ...], labels: tuple[str, ...]) -> Iterator[Family]:
    """Yield the family of each fact that is exported to Prometheus."""
    for fact in facts:
        kind: Literal["gauge", "counter"] = "gauge" if fact.gauge else "counter"
        if fact.type == "BOOLEAN":
            yield Family(fact.exported, kind, labels, f"1 where {fact.meaning.removeprefix('whether ')}, else 0")
        elif fact.type.startswith("MAP"):
            yield Family(fact.exported, kind, (*labels, "counter"), fact.meaning)
        elif fact.exported:
            yield Family(fact.exported, kind, labels, fact.meaning)


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
        "operator_watermark_lag_seconds",
        "gauge",
        _OPERATOR,
        "by how much the watermark of an operator is behind the clock, where it is another one than that of the job",
    ),
    Family(
        "batch_duration_seconds",
        "summary",
        ("job_name", "phase"),
        "how long batches took: plan (what is to be read), process (read and compute), commit (sinks, results and log)",
    ),
    *_families(SOURCE_FACTS, _SOURCE),
    Family(
        "source_watermark_lag_seconds", "gauge", _SOURCE, "by how much the watermark of the source is behind the clock"
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
    *_families(SINK_FACTS, _SINK),
    *_families(OPERATOR_FACTS, _OPERATOR),
)
FAMILIES: Mapping[str, Family] = {family.name: family for family in _ALL}
EXPORTED: frozenset[str] = frozenset(name for family in _ALL for name in family.exported)
