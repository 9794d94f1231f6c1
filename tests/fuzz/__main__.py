"""Texts and queries made by chance, for a while: `python -m tests.fuzz --seed 7 --seconds 600`.

A failure names the seed and the number of its case; `--case` makes that one again.
"""

from __future__ import annotations

import time
from random import Random

import click

from tests.fuzz.cases import answer_case, text_case

# For one query that runs, so many texts are compiled.
TEXTS = 5


@click.command(help=__doc__)
@click.option("--seed", type=int, default=lambda: int(time.time()), help="By default the time.")
@click.option("--seconds", type=int, default=300, help="How long to go on.")
@click.option("--case", "only", type=int, help="The one case to make.")
def main(seed: int, seconds: int, only: int | None) -> None:
    end, number, failed = time.monotonic() + seconds, only or 0, 0
    while True:
        found = run(seed, number)
        if found is not None:
            failed += 1
            click.echo(f"--- seed {seed}, case {number}\n{found}\n")
        if only is not None or time.monotonic() > end:
            break
        number += 1
    click.echo(f"seed {seed}: {number + 1 - (only or 0)} cases, {failed} failed")
    raise SystemExit(failed > 0)


def run(seed: int, number: int) -> str | None:
    """Make a case; return what goes wrong, with a short text that makes it."""
    random = Random(f"{seed}:{number}")
    found = text_case(random) if number % (TEXTS + 1) else answer_case(random)
    return f"{found[0].message}\n{found[1]}" if found is not None else None


if __name__ == "__main__":
    main()
