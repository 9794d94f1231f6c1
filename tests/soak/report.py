"""What a soak has found out: tables for people, and JSON beside the other results."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.soak.measuring import MB, Sample, growth, since
from tests.soak.running import Soak

# Less than that says nothing about growth: a job gathers its files every 64 batches.
JUDGED_SECONDS = 150.0
# A job that leaves a file behind in every batch grows twenty times as fast.
FILES_A_BATCH = 1 / 20
# So many files come and go: descriptors are folded 128 at a time, entries of the log gathered 64 at a time, and what nobody needs
# stays for a minute, which is more where batches are faster just then.
TIDE = 256
# After so many batches a folder is as full as it gets.
FULL_AFTER = 300
# Folders that no batch writes into.
FILES_A_MINUTE = 2.0
# Of the bytes that come in: a process that keeps what it has read grows at least twice as fast.
SHARE_OF_INPUT = 0.5


@dataclass(frozen=True, slots=True)
class Growth:
    """A series after the warm-up: its median, its growth in a minute, and how much that may be; None where it is not judged."""

    what: str
    median: float
    a_minute: float | None
    bound: float | None

    @property
    def is_flat(self) -> bool:
        return self.bound is None or self.a_minute is None or self.a_minute <= self.bound


def growths(soak: Soak) -> tuple[list[Growth], list[Growth]]:
    """Return how memory, in bytes, and numbers of files have grown since the warm-up."""
    seconds = soak.calm_ended - soak.warm_at
    judged = seconds >= JUDGED_SECONDS
    bound = soak.generator.bytes / max(soak.seconds_of_input, 1.0) * 60 * SHARE_OF_INPUT
    memory = [
        # The heap of the JVM fills up to its limit, whatever there is to keep.
        _growth(name, soak, samples, bound if judged and not name.endswith("JVM") else None)
        for name, samples in sorted(soak.measuring.memory.items())
    ]
    files = []
    for name, samples in sorted(soak.measuring.files.items()):
        job = name.rpartition("/")[2]
        batches = soak.batches_a_minute.get(job)
        most = FILES_A_MINUTE if batches is None else batches * FILES_A_BATCH + TIDE / max(seconds / 60, 1)
        # What Spark has shuffled goes when its JVM collects garbage, after half an hour at the latest.
        is_judged = judged and not (name == "temporary" and soak.plan.on_spark) and soak.is_full(job, FULL_AFTER)
        files.append(_growth(name, soak, samples, most if is_judged else None))
    return memory, files


def _growth(name: str, soak: Soak, samples: Sequence[Sample], bound: float | None) -> Growth:
    taken = [sample for sample in since(samples, soak.warm_at) if sample.at <= soak.calm_ended]
    middle = statistics.median(sample.value for sample in taken) if taken else float("nan")
    return Growth(name, middle, growth(taken) if taken else None, bound)


def judge(soak: Soak) -> list[str]:
    """Return what went wrong, with all that has grown too fast."""
    memory, files = growths(soak)
    failures = list(soak.failures)
    failures += [f"memory of {one.what} grows by {_mb(one.a_minute)} a minute" for one in memory if not one.is_flat]
    for one in files:
        if not one.is_flat:
            failures.append(f"{one.what} grows by {one.a_minute:.1f} files a minute{_most(soak, one.what)}")
    return failures


def _most(soak: Soak, folder: str) -> str:
    """Return which part of a folder grows most, and by how much."""
    found = [
        (a_minute, part)
        for part, samples in soak.measuring.parts.items()
        if part.startswith(f"{folder}/") and (a_minute := _growth(part, soak, samples, None).a_minute) is not None
    ]
    a_minute, part = max(found, default=(0.0, ""))
    return f", most of them in {part}: {a_minute:.1f}" if part else ""


def show(soak: Soak, failures: Sequence[str], console: Console) -> None:
    """Print the tables."""
    console.print(_clients(soak), _killed(soak), *_grown(soak), _results(soak))
    for reason, count in sorted(soak.kills.reasons().items()):
        console.print(f"{count} x {reason}", highlight=False, markup=False)
    for failure in failures:
        console.print(f"FAILED: {failure}", style="red", highlight=False, markup=False)
    console.print("everything held" if not failures else f"{len(failures)} failures", style="bold")


def _clients(soak: Soak) -> Table:
    table = Table("client", "what", "count", "median", "p99", "most", "errors while down", "failures", title="clients")
    for client in soak.clients:
        errors, failures = str(sum(client.expected.values())), str(len(client.failures))
        kinds: Mapping[str, Sequence[float]] = client.seconds or {"-": []}
        for kind, seconds in sorted(kinds.items()):
            table.add_row(client.client, kind, f"{len(seconds):,}", *_spread(seconds), errors, failures)
            errors = failures = ""
        if client.counts:
            table.add_row("", ", ".join(f"{count:,} {kind}" for kind, count in sorted(client.counts.items())))
    return table


def _spread(seconds: Sequence[float]) -> tuple[str, str, str]:
    if not seconds:
        return "-", "-", "-"
    return _ms(statistics.median(seconds)), _ms(percentile(seconds, 0.99)), _ms(max(seconds))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that so many are not above.

    >>> percentile([3.0, 1.0, 2.0, 4.0], 0.5), percentile([1.0], 0.99)
    (2.0, 1.0)
    """
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * share) - 1, 0)]


def _killed(soak: Soak) -> Table:
    table = Table("killed", "times", "all committed again after", "at most", title="kills")
    for kind, count in sorted(soak.kills.counts.items()):
        seconds = [took for what, took in soak.kills.recoveries if what == kind]
        shown = (f"{statistics.median(seconds):.1f} s", f"{max(seconds):.1f} s") if seconds else ("-", "-")
        table.add_row(kind, str(count), *shown)
    table.add_row("server down", "", f"{soak.outages.seconds:.1f} s in all", "")
    for job, count in soak.kills.restarts().items():
        table.add_row(f"restarts of {job}", str(count), "", "")
    return table


def _grown(soak: Soak) -> tuple[Table, Table]:
    memory, files = growths(soak)
    shown = Table("memory of", "median", "grows a minute", "bound", title=_title(soak))
    for one in memory:
        shown.add_row(one.what, _mb(one.median), _mb(one.a_minute), _mb(one.bound))
    counted = Table("files in", "median", "grow a minute", "bound", title="files")
    for one in files:
        counted.add_row(one.what, f"{one.median:.0f}", _number(one.a_minute), _number(one.bound))
    return shown, counted


def _title(soak: Soak) -> str:
    return f"over {max(soak.calm_ended - soak.warm_at, 0):.0f} s after the kills and a warm-up"


def _results(soak: Soak) -> Table:
    table = Table("job", "rows read", "batches", "rows written", "equal to DuckDB's answer", title="results")
    for job, rows in soak.results.items():
        wrong = any(failure.startswith(f"{job}: ") for failure in soak.failures)
        read, batches = soak.rows_read.get(job, 0), soak.kills.versions()[job] + 1
        table.add_row(job, f"{read:,}", f"{batches:,}", f"{rows:,}", "no" if wrong else "yes")
    return table


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"


def _mb(size: float | None) -> str:
    return "-" if size is None else f"{size / MB:,.2f} MB"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def write(soak: Soak, failures: Sequence[str], path: Path) -> None:
    """Write everything that was found out as JSON."""
    memory, files = growths(soak)
    clients: list[dict[str, Any]] = [
        {
            "client": client.client,
            "seconds": {
                kind: {"count": len(s), "median": statistics.median(s), "p99": percentile(s, 0.99), "most": max(s)}
                for kind, s in client.seconds.items()
            },
            "errors_while_down": client.expected,
            "events": client.counts,
            "failures": client.failures,
        }
        for client in soak.clients
    ]
    found = {
        "plan": asdict(soak.plan),
        "failures": list(failures),
        "clients": clients,
        "kills": soak.kills.counts,
        "recoveries": soak.kills.recoveries,
        "seconds_down": soak.outages.seconds,
        "restarts": soak.kills.restarts(),
        "reasons": soak.kills.reasons(),
        "memory": [asdict(one) for one in memory],
        "files": [asdict(one) for one in files],
        "rows_written": soak.results,
        "rows_read": soak.rows_read,
        "samples": soak.samples(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, default=str))
