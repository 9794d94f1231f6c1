"""What a profile costs: batches with one and without one, in turns, in one process.

    python -m tests.bench.tracing [--pairs 60]

The smallest batches of a windowed count, in this process and on Spark: there two jobs of the same query share a JVM and its
Python workers, and only one is profiled. Each pair has a batch of either, in a random order. The ratio of a pair is not disturbed
by what takes minutes, such as another program that keeps a core busy. On Spark a row moves the watermark, so an empty batch
follows, which counts, too; and workers open the file of the profile anew after each turn, so a whole run pays a little less.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import tempfile
import time
import timeit
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from sqlstream import Session, profiling
from sqlstream.profiling import TASKS
from sqlstream.testing import Stream
from tests.bench.data import small_files
from tests.bench.latency import DEADLINE_SECONDS
from tests.kinds import job_of

# Pairs of either kind that only warm the processes up.
WARM_UP = 10
PLAIN, TRACED = "plain", "traced"

SCRIPT = """
CREATE TABLE {name}_bid (auction BIGINT, ts TIMESTAMP(6), WATERMARK FOR ts AS ts) {source};
CREATE TABLE {name}_count (auction BIGINT, n BIGINT);
SET 'pipeline.name' = '{name}';
INSERT INTO {name}_count SELECT auction, COUNT(*) FROM TUMBLE(TABLE {name}_bid, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY auction, window_start, window_end;
"""
FILES = """WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet', 'source.monitor-interval' = '50 ms',
'source.max-files-per-batch' = '1')"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The median of the ratios of pairs, and the interval that has it with a probability of 95 %."""

    ratio: float
    low: float
    high: float
    pairs: int

    @classmethod
    def of(cls, befores: list[float], afters: list[float]) -> Comparison:
        """Compare pairs of times."""
        ratios = sorted(after / before for before, after in zip(befores, afters, strict=True))
        # Ranks of the sign test: how many ratios are larger than their median is binomial.
        outside = max(int(len(ratios) / 2 - 0.98 * len(ratios) ** 0.5), 0)
        return cls(statistics.median(ratios), ratios[outside], ratios[-1 - outside], len(ratios))


def turns(pairs: int) -> Iterator[tuple[str, str]]:
    """Yield the two kinds of batches, in a random order for each pair."""
    dice = random.Random(pairs)
    for _ in range(pairs):
        yield (PLAIN, TRACED) if dice.random() < 0.5 else (TRACED, PLAIN)


@contextmanager
def profiled_if(kind: str, folder: str) -> Iterator[None]:
    """Profile this process in the context of a traced batch."""
    if kind == TRACED:
        profiling.start(folder)
    try:
        yield
    finally:
        profiling.stop()


def local_times(pairs: int, folder: str) -> dict[str, list[float]]:
    """Return the seconds of batches of one row in this process."""
    times: dict[str, list[float]] = {PLAIN: [], TRACED: []}
    script, second = SCRIPT.format(name="local", source=""), 0
    with Stream(script) as stream:
        for kinds in turns(WARM_UP + pairs):
            for kind in kinds:
                second += 1
                row = (second % 10, f"2026-01-01 {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}")
                with profiled_if(kind, folder):
                    began = time.perf_counter()
                    stream.batch("local_bid", [row])
                    times[kind].append(time.perf_counter() - began)
    return {kind: seconds[WARM_UP:] for kind, seconds in times.items()}


def spark_times(pairs: int, folder: str) -> dict[str, list[float]]:
    """Return the seconds of batches of one row on Spark, each with the empty batch after it."""
    work = Path(tempfile.mkdtemp(prefix="sqlstream-tracing-"))
    times: dict[str, list[float]] = {PLAIN: [], TRACED: []}
    waiting = iter(small_files(work / "waiting", 2 * (WARM_UP + pairs)))
    (work / "project").mkdir()
    with Session(str(work / "project"), str(work / "warehouse"), {"parallelism.default": "2"}) as session:
        for kind in times:
            (work / kind).mkdir()
            # Workers profile a job that starts in a profile; what Spark says is recorded if its query starts in one.
            with profiled_if(kind, folder):
                job_of(session.sql(SCRIPT.format(name=kind, source=FILES.format(path=work / kind))))
                _seconds(work, kind, next(waiting), 0)
        for number, kinds in enumerate(turns(WARM_UP + pairs - 1), 1):
            for kind in kinds:
                with profiled_if(kind, folder):
                    times[kind].append(_seconds(work, kind, next(waiting), number))
        for job in session.jobs:
            job.stop()
            job.wait()
    return {kind: seconds[WARM_UP - 1 :] for kind, seconds in times.items()}


def _seconds(work: Path, kind: str, file: Path, number: int) -> float:
    """Let a file arrive, and return how long its batch and the empty one after it took."""
    root = work / "warehouse" / "jobs" / kind
    os.utime(file)
    file.rename(work / kind / file.name)
    last, deadline = root / "checkpoint" / "commits" / str(2 * number + 1), time.monotonic() + DEADLINE_SECONDS
    while not last.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"batch {2 * number + 1} of {kind} was not committed")
        time.sleep(0.005)
    line = (root / "splits" / "next" / f"{number:010d}.json").read_text().splitlines()[0]
    return last.stat().st_mtime_ns / 1e9 - float(json.loads(line)["time"]) / 1000


def _off_nanoseconds() -> float:
    """Return what a span costs while nothing is profiled."""

    def spans() -> None:
        with profiling.span("bucket", TASKS, job="a", batch=1, operator="b", bucket=2):
            pass

    return min(timeit.repeat(spans, number=100_000, repeat=5)) * 10_000


def _spans(folder: str) -> int:
    return sum(line.count(b'"ph":"X"') for path in Path(folder).iterdir() for line in path.read_bytes().splitlines())


@click.command()
@click.option("--pairs", type=click.IntRange(10), default=60, show_default=True, help="Pairs of batches.")
@click.option("--local-only", is_flag=True, help="Leave Spark out.")
def main(pairs: int, local_only: bool) -> None:
    """Measure what a profile costs."""
    click.echo(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
    click.echo(f"a span without a profile: {_off_nanoseconds():.0f} ns")
    for name, measure, batches in (("in this process", local_times, 1), ("on Spark", spark_times, 2))[
        : 1 + (not local_only)
    ]:
        with tempfile.TemporaryDirectory(prefix="sqlstream-tracing-") as folder:
            # In this process a pair takes a hundredth of the time.
            many = pairs * 10 if measure is local_times else pairs
            times = measure(many, folder)
            spans = _spans(folder) / (many + WARM_UP) / batches
        found = Comparison.of(times[PLAIN], times[TRACED])
        millis = statistics.median(times[PLAIN]) * 1000
        click.echo(
            f"{name}: {millis:.1f} ms for {batches} batch(es), {spans:.0f} spans a batch; with a profile x {found.ratio:.3f}"
            f" (95 %: {found.low:.3f} .. {found.high:.3f}; {found.pairs} pairs), load {os.getloadavg()[0]:.1f}"
        )


if __name__ == "__main__":
    main()
