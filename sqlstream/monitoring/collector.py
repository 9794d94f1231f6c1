"""A collector for prometheus_client: at each scrape it reads what the jobs of a warehouse have recorded there.

Jobs do nothing for it, and any process may run them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily

from sqlstream.errors import SqlStreamError
from sqlstream.monitoring.families import FAMILIES, STATUSES, Family
from sqlstream.storage.facts import OPERATOR_FACTS, SINK_FACTS, SOURCE_FACTS, Fact, counts
from sqlstream.storage.joblog import LogEntry
from sqlstream.storage.metrics import OperatorMetrics, SourceMetrics
from sqlstream.storage.snapshot import JobHistory
from sqlstream.units import END_OF_INPUT, EventTime, ProcessingTime, now, seconds
from sqlstream.warehouse.jobs import JobRecord
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.restarts import read_restarts
from sqlstream.warehouse.status import Status, effective_status
from sqlstream.zones import local_clock

_FAMILIES: Mapping[str, Any] = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}
# A sample: the name of its family, its labels, and its value, of a summary the count and the sum.
_Sample = tuple[str, tuple[str, ...], float | tuple[int, float]]


class JobCollector:
    """Collects the metrics of the jobs of a warehouse: of all jobs, or of those that `jobs` returns at a scrape.

    Register it with a `CollectorRegistry`. A job whose files cannot be read has fewer metrics, or none; other jobs have theirs.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        jobs: Callable[[], Collection[str]] | None = None,
        clock: Callable[[], ProcessingTime] = now,
    ):
        self._warehouse, self._clock = warehouse, clock
        self._jobs = jobs or warehouse.jobs

    def describe(self) -> list[Any]:
        """Return nothing: otherwise registering the collector would read all jobs, to learn the names of metrics."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the metric families of which a job has a sample."""
        samples: dict[str, list[_Sample]] = {}
        for name in sorted(self._jobs()):
            for sample in self._samples(name):
                samples.setdefault(sample[0], []).append(sample)
        for name, family in FAMILIES.items():
            if name in samples:
                yield _filled(family, samples[name])

    def _samples(self, name: str) -> Iterator[_Sample]:
        history = JobHistory(self._warehouse, name)
        try:
            # The name as it is in the script.
            label = history.record.job if history.record is not None else name
            status = effective_status(self._warehouse.fs, self._warehouse.job(name))
            yield from _status_samples(label, status)
            restarts = read_restarts(self._warehouse.fs, self._warehouse.job(name)).count
            yield "job_restarts", (label,), restarts
            entry = history.newest_entry
        except (SqlStreamError, FileNotFoundError):
            # The job is damaged, of another version, or was just dropped; `sqlstream.jobs` says more.
            return
        if entry is not None:
            yield from _entry_samples(label, entry, history.record, self._clock())


def _status_samples(job: str, status: Status | None) -> Iterator[_Sample]:
    yield "job_up", (job,), float(status is not None and status.state in ("RUNNING", "RESTARTING"))
    if status is None:
        return
    for one in STATUSES:
        yield "job_status", (job, one), float(one == status.state)
    yield "job_started_timestamp_seconds", (job,), status.started_at / 1_000_000
    for source, backlog in status.backlog.items():
        yield f"source_backlog_{backlog.unit}", (job, source), backlog.count


def _entry_samples(job: str, entry: LogEntry, record: JobRecord | None, time: ProcessingTime) -> Iterator[_Sample]:
    yield "job_committed_timestamp_seconds", (job,), entry.committed_at / 1_000_000
    yield "job_committed_batch", (job,), entry.version
    yield "job_rows_in", (job,), entry.rows_in
    yield "job_rows_out", (job,), entry.rows_out
    timed = [scan.name for scan in record.scans if scan.watermark_expression] if record is not None else []
    if (lag := _behind(entry.watermark, time, _zone(record, timed))) is not None:
        yield "job_watermark_lag_seconds", (job,), lag
    scans = {one.name: one.scans_of(timed) for one in record.operators} if record is not None else {}
    for name, watermark in entry.watermarks.items():
        if (lag := _behind(watermark, time, _zone(record, scans.get(name, ())))) is not None:
            yield "operator_watermark_lag_seconds", (job, name), lag
    for phase, spent in entry.spent.items():
        yield "batch_duration_seconds", (job, phase), (entry.version + 1, seconds(spent))
    for name, source in entry.sources.items():
        yield from _source_samples((job, name), source, time, _zone(record, [name]))
    for table, sink in entry.sinks.items():
        yield from _counts(SINK_FACTS, (job, table), sink)
    for name, operator in entry.operators.items():
        yield from _operator_samples((job, name), operator)


def _counts(facts: Sequence[Fact], labels: tuple[str, ...], metrics: object) -> Iterator[_Sample]:
    for fact in counts(facts):
        if (number := getattr(metrics, fact.name)) is not None:
            yield fact.exported, labels, number


def _zone(record: JobRecord | None, scans: Iterable[str]) -> str:
    return "UTC" if record is None else record.zone_of(scans)


def _source_samples(
    labels: tuple[str, ...], source: SourceMetrics, time: ProcessingTime, zone: str
) -> Iterator[_Sample]:
    yield from _counts(SOURCE_FACTS, labels, source)
    if source.latency is not None:
        yield "source_event_latency_seconds", labels, seconds(source.latency)
    if source.idle_timeout is None:
        # Its rows do not move the watermark.
        return
    yield "source_holds_watermark", labels, float(source.holds_minimum)
    if (lag := _behind(source.watermark, time, zone)) is not None:
        yield "source_watermark_lag_seconds", labels, lag


def _operator_samples(labels: tuple[str, ...], operator: OperatorMetrics) -> Iterator[_Sample]:
    yield from _counts(OPERATOR_FACTS, labels, operator)
    for counter, number in operator.counters.items():
        yield "user_counter", (*labels, counter), number


def _behind(watermark: EventTime | None, time: ProcessingTime, zone: str) -> float | None:
    """Return how many seconds a watermark, a local time of a zone, is behind the clock `time`.

    None without a watermark, and at the end of the input.
    """
    if watermark is None or watermark >= END_OF_INPUT:
        return None
    return (local_clock(time, zone) - watermark) / 1_000_000


def _filled(family: Family, samples: list[_Sample]) -> Any:
    meaning = family.meaning[0].upper() + family.meaning[1:] + "."
    name = f"sqlstream_{family.name}"
    if family.kind == "summary":
        summary = SummaryMetricFamily(name, meaning, labels=family.labels)
        for _, labels, value in samples:
            count, total = cast(tuple[int, float], value)
            summary.add_metric(labels, count_value=count, sum_value=total)
        return summary
    filled = _FAMILIES[family.kind](name, meaning, labels=family.labels)
    for _, labels, value in samples:
        filled.add_metric(labels, value)
    return filled
