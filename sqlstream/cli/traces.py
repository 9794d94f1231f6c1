"""The profile of a run, from the spans that its processes have written: one trace for Perfetto, and figures for a table."""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

import msgspec

from sqlstream.profiling import ACTION, BATCH, BUCKET, DRIVER, DUCKDB, OWN, SCAN, SPARK, STORAGE, TASKS, TRIGGER

Number = int | float
# Where the times of tasks on Spark go: while Python workers are at work, and while none is.
AT_WORK, BETWEEN = f"{ACTION}: workers at work", f"{ACTION}: Spark alone"
# What a batch on Spark does outside of the call of the driver, and what it says of its state stores.
_ADD, _AROUND, _STORE = "addBatch", "addBatch without the driver", "state store "
_ORDER = (SPARK, DRIVER, TASKS, STORAGE, DUCKDB)


class TraceEvent(msgspec.Struct):
    """A line of a file of spans; times are in microseconds. An event of `ph` "M" names a process or a thread."""

    name: str
    ph: str
    pid: int
    args: dict[str, str | int | float]
    cat: str = ""
    ts: int = 0
    dur: int = 0

    @property
    def own(self) -> int:
        """The time that is in none of the spans within it."""
        return int(self.args.get(OWN, 0))

    @property
    def batch(self) -> tuple[object, object]:
        """The job and the version of its batch."""
        return self.args.get("job"), self.args.get("batch")


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """The time of a phase, without phases within it: in `batches`, in all, and the median of these batches, in milliseconds.

    `share` is its part of the time of all batches. Tasks run beside each other, so their shares may add up to more than 1.
    """

    part: str
    phase: str
    batches: int
    total_ms: float
    p50_ms: float
    share: float


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """The time of the tasks of an operator, or of a scan, in a bucket (of a scan: in the task of this number), with DuckDB's."""

    job: str
    operator: str
    bucket: int
    batches: int
    total_ms: float
    p50_ms: float
    duckdb_ms: float
    statements: int


@dataclass(frozen=True, slots=True)
class StatementTime:
    """The time of a statement of an operator in all buckets and batches, how often it ran, and the rows that it returned."""

    operator: str
    statement: str
    runs: int
    total_ms: float
    rows: int


@dataclass(frozen=True, slots=True)
class Profile:
    """What a table shows of a run. `batches` are the times of its batches in milliseconds, by job and version."""

    batches: dict[tuple[object, object], float]
    phases: list[PhaseTime]
    operators: list[OperatorTime]
    statements: list[StatementTime]


def write_trace(folder: str, path: str) -> Profile:
    """Join the spans in a folder into a trace, a JSON file in Chrome's format, and return the figures."""
    figures = _Figures()
    with open(path, "wb") as trace:
        trace.write(b'{"displayTimeUnit": "ms", "traceEvents": [')
        separator = b"\n"
        for line in _lines(folder):
            trace.write(separator + line)
            separator = b",\n"
            figures.add(_EVENTS.decode(line))
        trace.write(b"\n]}\n")
    return figures.profile()


_EVENTS = msgspec.json.Decoder(TraceEvent)


def _lines(folder: str) -> Iterator[bytes]:
    for name in sorted(os.listdir(folder)):
        with open(f"{folder}/{name}", "rb") as file:
            # A process that was killed may leave a part of a line.
            yield from (line.rstrip() for line in file if line.endswith(b"}\n"))


@dataclass
class _PhaseSum:
    """Microseconds by batch, or by whatever else has a time of its own."""

    by_batch: dict[Hashable, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def total(self) -> float:
        return sum(self.by_batch.values()) / 1000

    @property
    def median(self) -> float:
        return statistics.median(self.by_batch.values()) / 1000


class _Figures:
    """Adds up events. What a trace has is not kept: a few numbers for each batch, phase, operator and statement are."""

    def __init__(self) -> None:
        self._batches: dict[str, dict[tuple[object, object], int]] = {TRIGGER: {}, BATCH: {}}
        self._phases: dict[tuple[str, str], _PhaseSum] = defaultdict(_PhaseSum)
        self._operators: dict[tuple[str, str, int], _PhaseSum] = defaultdict(_PhaseSum)
        self._duckdb: dict[tuple[str, str, int], list[int]] = defaultdict(lambda: [0, 0])
        self._statements: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
        # By batch: when the driver ran its tasks, and when Python workers were at work.
        self._actions: dict[tuple[object, object], tuple[int, int]] = {}
        self._work: dict[tuple[object, object], list[tuple[int, int]]] = defaultdict(list)
        self._number = 0

    def add(self, event: TraceEvent) -> None:
        if event.ph != "X":
            return
        self._number += 1
        # What belongs to no batch counts by itself.
        at: Hashable = event.batch if "batch" in event.args else self._number
        if event.name in self._batches:
            self._batches[event.name][event.batch] = event.dur
        if event.name == ACTION:
            self._actions[event.batch] = event.ts, event.ts + event.dur
        else:
            self._phases[event.cat, "statements" if event.cat == DUCKDB else event.name].by_batch[at] += event.own
        if event.cat == TASKS and event.name in (SCAN, BUCKET):
            self._work[event.batch].append((event.ts, event.ts + event.dur))
        for name, value in event.args.items():
            if name.startswith(_STORE):
                self._phases[SPARK, f"{name} (in tasks)"].by_batch[at] += int(value)
        self._add_of_operator(event, at)

    def _add_of_operator(self, event: TraceEvent, at: Hashable) -> None:
        args = event.args
        operator = str(args.get("operator", ""))
        key = str(args.get("job", "")), operator, int(args.get("bucket", 0))
        if event.name in (SCAN, BUCKET) and event.cat == TASKS:
            self._operators[key].by_batch[at] += event.dur
        if event.cat == DUCKDB:
            # A relation is bound by one span, and read by others.
            runs, statement = int("sql" in args), self._statements[operator, event.name]
            statement[:] = statement[0] + runs, statement[1] + event.own, statement[2] + int(args.get("rows", 0))
            self._duckdb[key][0] += event.own
            self._duckdb[key][1] += runs

    def profile(self) -> Profile:
        """Return the figures of all events."""
        self._split_actions()
        # On Spark the batch of the driver is a part of Spark's.
        jobs = {job for job, _ in self._batches[TRIGGER]}
        batches = {k: v for k, v in self._batches[BATCH].items() if k[0] not in jobs} | self._batches[TRIGGER]
        whole = sum(batches.values()) / 1000
        phases = [
            PhaseTime(part, name, len(times.by_batch), times.total, times.median, times.total / whole if whole else 0.0)
            for (part, name), times in self._phases.items()
        ]
        operators = [
            OperatorTime(*key, len(t.by_batch), t.total, t.median, self._duckdb[key][0] / 1000, self._duckdb[key][1])
            for key, t in self._operators.items()
        ]
        statements = [
            StatementTime(*key, runs, micros / 1000, rows) for key, (runs, micros, rows) in self._statements.items()
        ]
        return Profile(
            {key: micros / 1000 for key, micros in batches.items()},
            sorted(phases, key=lambda p: (_ORDER.index(p.part), -p.total_ms)),
            sorted(operators, key=lambda o: (o.job, -o.total_ms)),
            sorted(statements, key=lambda s: -s.total_ms),
        )

    def _split_actions(self) -> None:
        """Say of the tasks of batches on Spark how long workers were at work, and of Spark's call how long the driver was."""
        adds = self._phases.pop((SPARK, _ADD), _PhaseSum())
        for at, micros in adds.by_batch.items():
            called = self._batches[BATCH].get(at, 0)  # type: ignore[call-overload]
            self._phases[SPARK, _AROUND].by_batch[at] += max(micros - called, 0)
        for batch, (began, ended) in self._actions.items():
            at_work = _covered(self._work[batch], began, ended)
            self._phases[DRIVER, AT_WORK].by_batch[batch] += at_work
            self._phases[DRIVER, BETWEEN].by_batch[batch] += ended - began - at_work


def _covered(spans: list[tuple[int, int]], start: int, end: int) -> int:
    """Return how much of a stretch of time spans cover.

    >>> _covered([(0, 4), (3, 6), (8, 20)], 1, 10)
    7
    """
    covered, at = 0, start
    for first, last in sorted(spans):
        covered += max(min(last, end) - max(first, at), 0)
        at = max(at, last)
    return covered
