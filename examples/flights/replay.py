"""Replay prepared Parquet files: drop one day after the other into a folder, as if the days were passing.

Every file of a day appears at the same relative path under TO, whole: it is copied under a hidden name and then
renamed. Days that are there already are passed over, so an interrupted replay goes on where it stopped.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path


def replay(source: Path, to: Path, days: int | None = None, interval: float = 0.0) -> Iterator[Path]:
    """Yield each file of the first days once it is in place, pausing for `interval` seconds before each new day."""
    by_day: defaultdict[str, list[Path]] = defaultdict(list)
    for path in sorted(source.rglob("*.parquet")):
        if not path.name.startswith("."):
            by_day[path.stem].append(path.relative_to(source))
    for day in sorted(by_day)[:days]:
        missing = [path for path in by_day[day] if not (to / path).exists()]
        if missing:
            time.sleep(interval)
        for path in missing:
            drop(source / path, to / path)
            yield to / path


def drop(path: Path, to: Path) -> None:
    """Copy a file so that whoever lists the folder sees all of it or nothing."""
    to.parent.mkdir(parents=True, exist_ok=True)
    unfinished = to.with_name(f".{to.name}.part")
    # Without the times of the original: a stream reads its files in the order in which they were modified.
    shutil.copyfile(path, unfinished)
    unfinished.rename(to)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--from", dest="source", type=Path, required=True, metavar="DIR", help="what prepare.py wrote")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="the folder that a job reads")
    parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="pause before each day")
    parser.add_argument("--days", type=int, metavar="N", help="end when the first N days are there (default: all)")
    arguments = parser.parse_args()
    if not arguments.source.is_dir():
        parser.error(f"there is no folder {arguments.source}; prepare.py makes it")
    for path in replay(arguments.source, arguments.to, arguments.days, arguments.interval):
        print(path.relative_to(arguments.to), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
