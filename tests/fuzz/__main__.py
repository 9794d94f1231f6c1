"""Texts and queries made by chance, for a while: `python -m tests.fuzz --seed 7 --seconds 600`.

A failure names the seed and the number of its case; `--case` makes that one again. What it prints is a program, too, which tries
the case again, and a shorter one. Ctrl-C ends the run with its summary.
"""

from __future__ import annotations

import signal
import time
from collections import Counter

import click

from tests.fuzz.cases import TEXTS, Case, case
from tests.fuzz.failures import Failure
from tests.fuzz.shrinking import shrunk
from tests.fuzz.watching import Watched


@click.command(help=__doc__)
@click.option("--seed", type=int, default=lambda: int(time.time()), help="By default the time.")
@click.option("--seconds", type=int, default=300, help="How long to go on.")
@click.option("--queries", is_flag=True, help="Run queries only.")
@click.option("--case", "only", type=int, help="The one case to make.")
def main(seed: int, seconds: int, queries: bool, only: int | None) -> None:
    # Who ends a run, by `timeout`, say, wants to know what it found.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    end, number, done, kinds = time.monotonic() + seconds, only or 0, Counter[str](), Counter[str]()
    try:
        with Watched() as watched:
            while True:
                failure = watched.tried(case(seed, number))
                done["texts" if number % (TEXTS + 1) else "queries"] += 1
                if failure is not None:
                    kinds[failure.kind] += 1
                    click.echo(f"--- seed {seed}, case {number}\n{told(watched, seed, number, failure, kinds)}\n")
                number += TEXTS + 1 if queries else 1
                if only is not None or time.monotonic() > end:
                    break
    except KeyboardInterrupt:
        click.echo(f"ended in case {number}")
    found = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none"
    click.echo(f"seed {seed}: {done['texts']} texts, {done['queries']} queries; failures: {found}")
    raise SystemExit(bool(kinds))


def told(watched: Watched, seed: int, number: int, failure: Failure, seen: Counter[str]) -> str:
    """Say what goes wrong, and make the case short unless its kind is known."""
    found = case(seed, number)
    if failure.kind != "answer" and seen[failure.kind] > 2:
        return failure.message

    def fails(smaller: Case) -> bool:
        again = watched.tried(smaller)
        return again is not None and again.kind == failure.kind

    short = shrunk(found, fails)
    again = (watched.tried(short) or failure).message
    return f"{_comment(failure.message)}\n{found}\n\n{_comment(f'shorter: {again}')}\n{short}"


def _comment(text: str) -> str:
    return "\n".join(f"# {line}" for line in text.splitlines())


if __name__ == "__main__":
    main()
