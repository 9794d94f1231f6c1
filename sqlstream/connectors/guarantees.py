"""What a job promises, by its sources and its sink: the rows of the manual's table, and the line that EXPLAIN prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlstream.catalog import Table

# By connector; a table without one is in the warehouse.
WAREHOUSE = "warehouse table"


@dataclass(frozen=True, slots=True)
class Guarantee:
    """Whether every row counts exactly once, or at least or at most once, and why."""

    times: str
    reason: str


# Whether the source can be read again, so that a batch after a crash has the rows that it had before.
SOURCES: Mapping[str, Guarantee] = {
    "filesystem": Guarantee("exactly once", "files are read again"),
    WAREHOUSE: Guarantee("exactly once", "committed batches are read again"),
    "datagen": Guarantee("exactly once", "a row is made of its number again"),
    "nexmark": Guarantee("exactly once", "an event is made of its number again"),
    "python": Guarantee("exactly once", "if `read` gives the same rows for the same positions"),
    "values": Guarantee("exactly once", "the rows stand in the query"),
    "socket": Guarantee("at most once", "what was received is kept, but lines sent while the job is down are lost"),
}
# How often a row that was read may appear in the sink.
SINKS: Mapping[str, Guarantee] = {
    WAREHOUSE: Guarantee("exactly once", "rows are committed with the batch"),
    "filesystem": Guarantee("exactly once", "files get their names once, when the batch is committed"),
    "python": Guarantee("at least once", "the last batch may come again; exactly once if `write` knows its number"),
    "print": Guarantee("at least once", "a batch that is repeated after a crash is printed again"),
    "blackhole": Guarantee("exactly once", "nothing is written"),
}


def guarantee(sources: Iterable[Table], sink: Table) -> str:
    """Return the line for a job: how often each row that it reads counts in what it writes, and why not exactly once.

    >>> guarantee([Table("s", (), options={"connector": "socket"})], Table("t", ()))
    'at most once: what was received is kept, but lines sent while the job is down are lost (source s)'
    """
    found = [(SOURCES[_kind(t)], f"source {t.name}") for t in sources]
    found.append((SINKS[_kind(sink)], f"sink {sink.name}"))
    weak = [(g, where) for g, where in found if g.times != "exactly once"]
    if not weak:
        conditions = [f"{g.reason} ({where})" for g, where in found if g.reason.startswith("if ")]
        return ", ".join(["exactly once", *conditions])
    times = {g.times for g, _ in weak}
    answer = times.pop() if len(times) == 1 else "neither at least nor at most once"
    return f"{answer}: {'; '.join(f'{g.reason} ({where})' for g, where in weak)}"


def _kind(table: Table) -> str:
    return table.connector or WAREHOUSE


def matrix() -> str:
    """Return the manual's table of sources and sinks."""
    lines = ["| source | can be read again | |", "|---|---|---|"]
    for name, g in SOURCES.items():
        lines.append(f"| {_shown(name)} | {'yes' if g.times == 'exactly once' else 'no'} | {g.reason} |")
    lines += ["", "| from, into | " + " | ".join(map(_shown, SINKS)) + " |", f"|---|{'---|' * len(SINKS)}"]
    for rows, source in (("a source that can be read again", "exactly once"), ("`socket`", "at most once")):
        cells = [g.times if source == "exactly once" else _both(source, g.times) for g in SINKS.values()]
        lines.append(f"| {rows} | {' | '.join(cells)} |")
    lines += ["", *(f"- {_shown(name)}: {g.reason}." for name, g in SINKS.items() if g.times != "exactly once")]
    return "\n".join(lines)


def _both(source: str, sink: str) -> str:
    return source if sink in (source, "exactly once") else "neither"


def _shown(name: str) -> str:
    return name if name == WAREHOUSE else f"`{name}`"
