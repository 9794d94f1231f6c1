"""What was measured, as a table on the terminal, as Markdown, JSON and a plot."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import msgspec
from rich.table import Table

from tests.bench.changing import BatchRun
from tests.bench.changing_work import changing_work
from tests.bench.flink import BACKENDS
from tests.bench.join_work import join_work
from tests.bench.joining import STATE_2, STATE_4
from tests.bench.kafka.measure import KafkaRun
from tests.bench.kafka.work import work_named as kafka_work
from tests.bench.latency import Latency
from tests.bench.nexmark_results import Recorded
from tests.bench.nexmark_results import table as nexmark_table
from tests.bench.plain_spark import HEAP_STORE, ROCKSDB_STORE, STORES
from tests.bench.process.work import UDAF, process_work
from tests.bench.rates import addition_seconds
from tests.bench.saving import ALONE, BESIDE, SavingRun
from tests.bench.throughput import DUCKDB, SQLSTREAM, Run
from tests.bench.work import work_named

HEADER = ("work", "system", "rows/s once warm", "sqlstream is", "batch", "whole run", "peak memory")

# At least how many times as fast as Spark with the faster of some stores.
RATIOS = (
    ("tumbling_many", (HEAP_STORE,), 2.0),
    ("tumbling_many", (ROCKSDB_STORE,), 4.0),
    ("hopping_few", STORES, 5.0),
    ("hopping_many", STORES, 5.0),
    ("session_few", STORES, 3.0),
    ("session_many", STORES, 3.0),
)
# At most how many seconds.
LIMITS = (
    ("start", "start to first result", 8.0),
    ("query", "query on small state", 1.0),
    ("explain", "explain", 1.0),
)
# Of another number of tasks, with 5 million keys.
SPREAD_SECONDS = 15
PLOTS_IN_A_ROW = 3


@dataclass(frozen=True, slots=True)
class Figures(Run):
    """A run, and the peak memory of its processes."""

    peak_bytes: int


@dataclass(slots=True)
class Results:
    """Everything of one `make bench`: by work and system, by system, and by command in seconds."""

    machine: dict[str, object]
    rows: int
    batches: int
    repeat: int
    works: dict[str, dict[str, Figures]] = field(default_factory=dict)
    changes: dict[str, dict[str, BatchRun]] = field(default_factory=dict)
    joins: dict[str, dict[str, Figures]] = field(default_factory=dict)
    processes: dict[str, dict[str, Figures]] = field(default_factory=dict)
    nexmark: list[Recorded] = field(default_factory=list)
    kafka: dict[str, dict[str, KafkaRun]] = field(default_factory=dict)
    savepoints: dict[str, SavingRun] = field(default_factory=dict)
    latencies: dict[str, Latency] = field(default_factory=dict)
    commands: dict[str, float] = field(default_factory=dict)


def machine() -> dict[str, object]:
    """Return what the figures depend on; the load is that of other work before the benchmark."""
    packages = ("pyspark", "duckdb", "pyarrow", "pandas", "numpy")
    return {
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
        "seconds of 10^7 additions": round(addition_seconds(), 2),
        **{name: version(name) for name in packages},
    }


def _rows(results: Results) -> Iterator[tuple[str, ...]]:
    throughput = [(work_named(name).title, runs) for name, runs in results.works.items()]
    throughput += [(join_work(name).title, runs) for name, runs in results.joins.items()]
    throughput += [(process_work(name).title, runs) for name, runs in results.processes.items()]
    for title, systems in throughput:
        ours = systems[SQLSTREAM].rows_per_second
        for system, f in systems.items():
            ratio = "" if system == SQLSTREAM else f"{ours / f.rows_per_second:.2f} x"
            speed = _speed(f.rows_per_second)
            batch = f"{f.batch_ms:.0f} ms"
            yield title, system, speed, ratio, batch, f"{f.whole_seconds:.1f} s", _memory(f.peak_bytes)
            title = ""
    for name, runs in results.changes.items():
        title, ours_ms = changing_work(name).title, runs[SQLSTREAM].batch_ms
        for system, run in runs.items():
            ratio = "" if system == SQLSTREAM else f"{run.batch_ms / ours_ms:.2f} x"
            speed = f"{run.rows_per_second / 1e6:.2f} M"
            yield title, system, speed, ratio, f"{run.batch_ms:.0f} ms", f"{run.whole_seconds:.1f} s", ""
            title = ""


def _speed(rows_per_second: float) -> str:
    if rows_per_second < 100_000:
        return f"{rows_per_second / 1e3:.1f} k"
    return f"{rows_per_second / 1e6:.2f} M"


def _memory(bytes: int) -> str:
    # Flink's is not measured.
    return f"{bytes / 1e9:.2f} GB" if bytes else ""


def table(results: Results) -> Table:
    """Return the table for a terminal."""
    title = f"{results.rows:,} rows in {results.batches} batches, {results.machine['cores']} cores"
    found = Table(title=title, title_justify="left")
    for number, name in enumerate(HEADER):
        found.add_column(name, justify="left" if number < 2 else "right")
    for row in _rows(results):
        found.add_row(*row)
    return found


KAFKA_HEADER = ("Kafka to Kafka", "system", "rows/s once started", "sqlstream is", "whole run")


def kafka_rows(results: Results) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table of the works from Kafka to Kafka."""
    for name, runs in results.kafka.items():
        title, ours = kafka_work(name).title, runs[SQLSTREAM].rows_per_second
        for system, run in runs.items():
            ratio = "" if system == SQLSTREAM else f"{ours / run.rows_per_second:.2f} x"
            yield title, system, _speed(run.rows_per_second), ratio, f"{run.whole_seconds:.1f} s"
            title = ""


def kafka_table(results: Results) -> Table:
    """Return the messages a second from Kafka to Kafka for a terminal."""
    found = Table(title="Kafka to Kafka, the broker on the same machine", title_justify="left")
    for number, name in enumerate(KAFKA_HEADER):
        found.add_column(name, justify="left" if number < 2 else "right")
    for row in kafka_rows(results):
        found.add_row(*row)
    return found


SAVING_HEADER = ("step", "engine", "seconds", "of processors")


def saving_rows(results: Results) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table of savepoints and their like."""
    for engine, run in results.savepoints.items():
        for step in run.steps:
            spent = "" if step.processor_seconds is None else f"{step.processor_seconds:.2f}"
            yield step.name, engine, f"{step.seconds:.2f}", spent


def saving_table(results: Results) -> Table:
    """Return what savepoints, restores and another parallelism take, for a terminal."""
    rows = max(run.state_rows for run in results.savepoints.values())
    found = Table(title=f"Savepoints, {rows:,} rows of state", title_justify="left")
    for number, name in enumerate(SAVING_HEADER):
        found.add_column(name, justify="left" if number < 2 else "right")
    for row in saving_rows(results):
        found.add_row(*row)
    return found


def targets(results: Results) -> str:
    """Return how Spark did what it has no operator for, the latencies and, behind each target, whether it was reached."""
    return "\n".join([*_notes(results), *_targets(results)])


def _notes(results: Results) -> list[str]:
    return list(dict.fromkeys(note for name in results.works if (note := work_named(name).note)))


def _targets(results: Results) -> Iterator[str]:
    for name, stores, factor in RATIOS:
        found = results.works.get(name, {})
        if known := [s for s in stores if s in found]:
            store = max(known, key=lambda s: found[s].rows_per_second)
            ratio = found[SQLSTREAM].rows_per_second / found[store].rows_per_second
            title = work_named(name).title
            yield f"{title}, sqlstream to {store}: {ratio:.1f} x (target {factor:.0f} x: {_reached(ratio >= factor)})"
    yield from _changing_targets(results)
    for name, runs in results.joins.items():
        if not join_work(name).spark:
            continue
        for engine, systems in (("Spark", (STATE_2, STATE_4)), ("Flink", tuple(BACKENDS))):
            if speeds := [runs[s].rows_per_second for s in systems if s in runs]:
                ratio = runs[SQLSTREAM].rows_per_second / max(speeds)
                target = f" (target 5 x: {_reached(ratio >= 5)})" if name == "interval_join" else ""
                yield f"{join_work(name).title}, sqlstream to {engine}'s best: {ratio:.1f} x{target}"
    yield from _process_targets(results)
    yield from _saving_targets(results)
    for system, latency in results.latencies.items():
        target = f" (target 300 ms: {_reached(latency.batch_ms <= 300)})" if system == SQLSTREAM else ""
        yield f"smallest batch, {system}: {latency.batch_ms:.0f} ms{target}, from the file's arrival {latency.file_ms:.0f} ms"
    for name, title, limit in LIMITS:
        if name in results.commands:
            seconds = results.commands[name]
            yield f"{title}: {seconds:.2f} s (target {limit:.0f} s: {_reached(seconds <= limit)})"


def _changing_targets(results: Results) -> Iterator[str]:
    found = {name: runs[SQLSTREAM].batch_ms for name, runs in results.changes.items()}
    for name in ("group_by", "two_levels", "top_ten", "keep_last"):
        few, many = (found.get(f"{name}_{size}{'_some' if name == 'group_by' else ''}") for size in ("few", "many"))
        if few and many:
            reached = _reached(many <= 1.5 * few)
            yield f"{name}, a batch at 5 M keys to one at 100 k keys: {many / few:.2f} x (target 1.5 x: {reached})"
    for name in ("group_by_few_all", "group_by_many_all"):
        if ROCKSDB_STORE in (runs := results.changes.get(name, {})):
            ratio = runs[ROCKSDB_STORE].batch_ms / runs[SQLSTREAM].batch_ms
            title = changing_work(name).title
            yield f"{title}, sqlstream to {ROCKSDB_STORE}: {ratio:.1f} x (target 1 x: {_reached(ratio >= 1)})"


def _process_targets(results: Results) -> Iterator[str]:
    for name, runs in results.processes.items():
        work, own = process_work(name), runs[SQLSTREAM]
        if work.touched:
            continue
        if UDAF in runs:
            ratio = own.rows_per_second / runs[UDAF].rows_per_second
            yield f"{work.title}, DuckDB's aggregate to a vectorized @udaf: {ratio:.1f} x (target 3 x: {_reached(ratio <= 3)})"
            continue
        yield f"{work.title}: {own.rows_per_second:,.0f} rows/s (target 150,000: {_reached(own.rows_per_second >= 150_000)})"
        others = [run.rows_per_second for system, run in runs.items() if system not in (*work.functions, DUCKDB)]
        if others:
            ratio = own.rows_per_second / max(others)
            yield f"{work.title}, sqlstream to the best of Spark and PyFlink: {ratio:.1f} x (target 3 x: {_reached(ratio >= 3)})"
    few, many = (results.processes.get(name) for name in ("alerts_few", "alerts_many"))
    if few and many:
        ratio = many[SQLSTREAM].batch_ms / few[SQLSTREAM].batch_ms
        yield f"alerts, a batch at 5 M keys to one at 100 k keys: {ratio:.2f} x (target 1.5 x: {_reached(ratio <= 1.5)})"


def _saving_targets(results: Results) -> Iterator[str]:
    for engine, run in results.savepoints.items():
        seconds = {step.name: step.seconds for step in run.steps}
        more = seconds[BESIDE] / seconds[ALONE]
        yield f"savepoints, {engine}: {BESIDE}: {more:.2f} x (target 1.1 x: {_reached(more <= 1.1)})"
        for name, took in seconds.items():
            if name.startswith("parallelism"):
                yield f"{name}, {engine}: {took:.1f} s (target {SPREAD_SECONDS} s: {_reached(took <= SPREAD_SECONDS)})"


def _reached(yes: bool) -> str:
    return "reached" if yes else "missed"


def write(results: Results, folder: Path) -> None:
    """Write results.json, table.md and plot.png."""
    (folder / "results.json").write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
    lines = ["| " + " | ".join(HEADER) + " |", "|---|---|" + "---:|" * (len(HEADER) - 2)]
    lines += ["| " + " | ".join(row) + " |" for row in _rows(results)]
    lines += ["", *(f"- {line}" for line in [*_notes(results), *_targets(results)]), ""]
    if results.kafka:
        lines += ["| " + " | ".join(KAFKA_HEADER) + " |", "|---|---|" + "---:|" * (len(KAFKA_HEADER) - 2)]
        lines += [*("| " + " | ".join(row) + " |" for row in kafka_rows(results)), ""]
    if results.savepoints:
        lines += ["| " + " | ".join(SAVING_HEADER) + " |", "|---|---|---:|---:|"]
        lines += [*("| " + " | ".join(row) + " |" for row in saving_rows(results)), ""]
    if results.nexmark:
        lines += [nexmark_table(results.nexmark), ""]
    lines += [", ".join(f"{name} {value}" for name, value in results.machine.items()), ""]
    (folder / "table.md").write_text("\n".join(lines))
    if results.works:
        _plot(results, folder / "plot.png")


def _plot(results: Results, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    across = min(len(results.works), PLOTS_IN_A_ROW)
    down = -(-len(results.works) // across)
    figure, axes = pyplot.subplots(down, across, figsize=(4.5 * across, 2.6 * down), squeeze=False)
    for axis in axes.flat[len(results.works) :]:
        axis.set_visible(False)
    for axis, (name, systems) in zip(axes.flat, results.works.items(), strict=False):
        # DuckDB over all rows at once is the limit, an order of magnitude away: a number, not a bar.
        shown = {s: f.rows_per_second / 1e6 for s, f in systems.items() if s != DUCKDB}
        colors = ["tab:orange" if s == SQLSTREAM else "tab:gray" for s in shown]
        bars = axis.barh(list(shown), list(shown.values()), color=colors)
        axis.bar_label(bars, fmt="%.2f", padding=3)
        axis.invert_yaxis()
        axis.margins(x=0.18)
        limit = systems.get(DUCKDB)
        note = f" ({DUCKDB}: {limit.rows_per_second / 1e6:.0f})" if limit else ""
        axis.set_title(work_named(name).title, fontsize=10)
        axis.set_xlabel(f"million rows/s{note}", fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
