"""The runs of Nexmark that the manual quotes: each of them is in `results/nexmark.json`, from which the manual's tables are made.

`make bench FLINK=1 ARGS="--only nexmark --record"` adds runs to the file, `pytest tests/bench --update` writes the tables.
"""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tests.bench.flink import BACKENDS, HEAP
from tests.bench.nexmark import NexmarkRun
from tests.bench.throughput import IN_PROCESS, SQLSTREAM

RECORDED = Path(__file__).parent / "results" / "nexmark.json"
SYSTEMS = (SQLSTREAM, IN_PROCESS, *BACKENDS)


class Recorded(msgspec.Struct, frozen=True):
    """One run of a query on a system: the rows read once warm and their seconds, those of the whole process, and when it was.

    `rows` is 0 if the system refused the query. `addition_seconds` says how fast the machine was (see `rates`).
    """

    query: str
    system: str
    events: int
    rows: int
    seconds: float
    whole_seconds: float
    commit: str
    day: str
    addition_seconds: float

    @property
    def per_second(self) -> float:
        return self.rows / self.seconds

    @property
    def text(self) -> str:
        if not self.rows:
            return "refused, see the log"
        return f"{self.per_second:,.0f} events/s over {self.seconds:.1f} s, whole run {self.whole_seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class Figure:
    """The runs of a query on a system."""

    runs: tuple[Recorded, ...]

    @property
    def per_second(self) -> float:
        """The median of the runs."""
        return statistics.median(run.per_second for run in self.runs)

    @property
    def whole_seconds(self) -> float:
        return statistics.median(run.whole_seconds for run in self.runs)

    @property
    def text(self) -> str:
        """The rate with the least and the greatest one, where there are several runs."""
        rates = sorted(run.per_second for run in self.runs)
        return rate_text(self.per_second) + (f" ({rate_text(rates[0])} to {rate_text(rates[-1])})" if rates[1:] else "")


def rate_text(per_second: float) -> str:
    """Return a rate in thousands or millions.

    >>> rate_text(61_234), rate_text(1_249_000)
    ('61 k', '1.25 M')
    """
    return f"{per_second / 1e6:.2f} M" if per_second >= 999_500 else f"{per_second / 1e3:.0f} k"


def read(path: Path = RECORDED) -> list[Recorded]:
    """Return all recorded runs."""
    return msgspec.json.decode(path.read_bytes(), type=list[Recorded]) if path.exists() else []


def result(query: str, system: str, events: int, run: NexmarkRun, machine_seconds: float) -> Recorded:
    """Return a run as it is recorded. Raises UnfitRunError if its numbers contradict each other."""
    rate = run.rate(events)
    rows, seconds = (rate.rows, rate.seconds) if rate else (0, 0.0)
    asked = ["git", "rev-parse", "--short=8", "HEAD"]
    commit = subprocess.run(
        asked, cwd=RECORDED.parent.parent, capture_output=True, text=True, check=True
    ).stdout.strip()
    day, whole = datetime.now(UTC).date().isoformat(), round(run.whole_seconds, 1)
    return Recorded(query, system, events, rows, round(seconds, 3), whole, commit, day, round(machine_seconds, 2))


def record(run: Recorded) -> None:
    """Add a run to the file."""
    runs = sorted([*read(), run], key=lambda run: (int(run.query[1:]), SYSTEMS.index(run.system)))
    RECORDED.parent.mkdir(exist_ok=True)
    lines = [msgspec.json.encode(run).decode() for run in runs]
    RECORDED.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def figures(runs: Sequence[Recorded]) -> dict[str, dict[str, Figure]]:
    """Return the runs that were not refused by query and system."""
    found: dict[str, dict[str, list[Recorded]]] = {}
    for run in runs:
        if run.rows:
            found.setdefault(run.query, {}).setdefault(run.system, []).append(run)
    return {query: {name: Figure(tuple(of)) for name, of in systems.items()} for query, systems in found.items()}


def ratios(runs: Sequence[Recorded], system: str = HEAP) -> dict[str, float]:
    """Return by query how many times as fast as another system sqlstream is, once warm."""
    return {
        query: found[SQLSTREAM].per_second / found[system].per_second
        for query, found in figures(runs).items()
        if SQLSTREAM in found and system in found
    }


def table(runs: Sequence[Recorded]) -> str:
    """Return the table of all queries in Markdown, with the systems that have runs."""
    measured = [system for system in SYSTEMS if any(run.system == system for run in runs)]
    others = [system for system in measured if system != SQLSTREAM and SQLSTREAM in measured]
    heads = ["query", "events", *(f"{s}, events/s" for s in measured), *(f"to {s}" for s in others)]
    heads.append(f"whole runs ({', '.join(measured)})")
    rows = [list(_row(query, systems, measured, others)) for query, systems in figures(runs).items()]
    return "\n".join(_lines(heads, rows))


def _lines(heads: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "|---|" + "---:|" * (len(heads) - 1)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def _row(query: str, systems: dict[str, Figure], measured: list[str], others: list[str]) -> Iterator[str]:
    yield query
    yield f"{next(iter(systems.values())).runs[0].events / 1e6:g} M"
    for system in measured:
        yield systems[system].text if system in systems else ""
    for system in others:
        both = SQLSTREAM in systems and system in systems
        yield f"{systems[SQLSTREAM].per_second / systems[system].per_second:.2f} x" if both else ""
    yield ", ".join(f"{systems[s].whole_seconds:.0f} s" if s in systems else "-" for s in measured)


def conditions(runs: Sequence[Recorded]) -> str:
    """Return when and how often was measured, and how fast the machine was."""
    days = sorted({run.day for run in runs})
    speeds = sorted(run.addition_seconds for run in runs)
    counts = sorted({len(f.runs) for found in figures(runs).values() for f in found.values()})
    times = {1: "one run each", 2: "two runs each", 3: "the medians of three runs, with the least and the greatest"}
    how = "; ".join(times.get(count, f"the medians of {count} runs") for count in counts)
    slower = [max(f.runs[0].seconds for f in found.values()) for found in figures(runs).values()]
    worked = f"{min(slower):.0f} to {max(slower):.0f} s"
    additions = f"{speeds[0]:.2f} to {speeds[-1]:.2f} s"
    return (
        f"Measured on {' and '.join(days)}, {how}; the slower system of a query worked for {worked} once warm. "
        f"A loop of ten million additions in Python took {additions} of the processor."
    )


def summary(runs: Sequence[Recorded]) -> str:
    """Return the slowest and the quickest query, then these and the median beside each state of Flink."""
    rates = [systems[SQLSTREAM].per_second for systems in figures(runs).values() if SQLSTREAM in systems]
    measured = {system: sorted(ratios(runs, system).values()) for system in BACKENDS}
    beside = [f"{_range(compared)} x {system}" for system, compared in measured.items() if compared]
    return "; ".join([f"{rate_text(min(rates))} to {rate_text(max(rates))} events/s", *beside])


def _range(compared: Sequence[float]) -> str:
    return f"{compared[0]:.2f} to {compared[-1]:.1f} (median {statistics.median(compared):.2f})"
