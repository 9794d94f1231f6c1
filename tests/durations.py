"""How long tests take, by folder and file: a table at the end of a run, and a file with all of it (`--durations-to FILE`).

Seconds are those of the clock that a worker spends on a test and its fixtures. Several workers share the cores, so they add up to
more than the run takes. `python -m tests.durations .durations/test.json` makes a table for CONTRIBUTING of such a file.

`make test` has a budget, and so has each folder of it (`budgets.json`: seconds of a worker). A run says what is beyond them,
and does not fail for that: a machine may be busy. `python -m tests.durations .durations/test.json --budgets` shares the
budget out as a run has spent it. With `--long` its tests that take long are added to those of which `make test` takes a quarter
(`long_tests.json`), and those that no longer exist are left out.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import LONG_TESTS, long_tests

# What `make test` may take on two cores that need so many seconds of processor time for ten million additions.
BUDGET = 15 * 60
ADDITIONS = 0.5
# Of `make test`: it has more workers than cores.
WORKERS = 3
BUDGETS = Path(__file__).with_name("budgets.json")
# How far beyond its budget a folder may be before a run says so: what runs beside it has a part in it.
SLACK = 1.5
# Seconds beyond a budget that are not worth a word.
FEW_SECONDS = 5
# A test takes long from so many seconds of a worker on, on a machine of `ADDITIONS`.
TAKES_LONG = 3.0
# So many files are listed, and tests of at least so many seconds are written into the file.
FILES = 15
FOLDERS = 15
SECONDS = 0.5


def additions() -> float:
    """Return the processor time of ten million additions, in seconds: by it machines can be compared."""
    began = time.process_time()
    total = 0
    for number in range(10_000_000):
        total += number
    return time.process_time() - began


@dataclass
class Sum:
    """What the tests of a folder or a file take."""

    tests: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    name: str = ""

    def add(self, name: str, seconds: float) -> None:
        self.tests += 1
        self.seconds += seconds
        if seconds >= self.longest:
            self.longest, self.name = seconds, name


@dataclass
class Durations:
    """Sums what all workers of a run report of their tests."""

    by_test: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, test: str, seconds: float) -> None:
        """Count seconds of a test, which is set up, called and torn down."""
        self.by_test[test] += seconds

    def by_file(self) -> dict[str, Sum]:
        return self._sums(lambda file: file)

    def by_folder(self) -> dict[str, Sum]:
        return self._sums(lambda file: file.rpartition("/")[0])

    def _sums(self, group: Callable[[str], str]) -> dict[str, Sum]:
        sums: defaultdict[str, Sum] = defaultdict(Sum)
        for test, seconds in self.by_test.items():
            file, _, name = test.partition("::")
            sums[group(file)].add(name, seconds)
        return dict(sorted(sums.items()))

    @property
    def seconds(self) -> float:
        return sum(self.by_test.values())


def beyond(seconds: float, speed: float) -> str | None:
    """Say by how much a run is longer than its budget on a machine of a speed, if it is."""
    budget = BUDGET * speed / ADDITIONS
    if seconds <= budget:
        return None
    return f"beyond the budget: {seconds:.0f} s of {budget:.0f} s, which are {BUDGET} s at {ADDITIONS} s"


def budgets() -> dict[str, float]:
    """Return the seconds of a worker that each folder may take, on a machine of `ADDITIONS`."""
    return json.loads(BUDGETS.read_text())  # type: ignore[no-any-return]


def folders_beyond(folders: Mapping[str, Sum], speed: float) -> Iterator[str]:
    """Yield a line for each folder that takes longer than its budget, and for each one without."""
    known = budgets()
    for folder, total in folders.items():
        budget = known.get(folder, 0.0) * speed / ADDITIONS
        if total.seconds > budget * SLACK + FEW_SECONDS:
            yield f"beyond its budget: {folder}, {total.seconds:.0f} s of {budget:.0f} s"


def shared_out(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the budget of all tests shared out to the folders as a recorded run has spent its time."""
    spent = sum(record["folders"].values())
    share = BUDGET * WORKERS / spent
    return {folder: round(seconds * share, 1) for folder, seconds in sorted(record["folders"].items())}


def with_long_tests(known: Collection[str], record: Mapping[str, Any]) -> list[str]:
    """Return the known tests that take long and those of a recorded run.

    Tests of the code itself, which are in no folder of their own, are not among them.
    """
    least = TAKES_LONG * record["additions"] / ADDITIONS
    recorded = {test for test, seconds in record["tests"].items() if seconds >= least and test.count("/") > 1}
    return sorted(recorded.union(known))


def exists(test: str) -> bool:
    """Return whether the file of a test has its name; its parameters are not looked at."""
    file, _, name = test.partition("::")
    return Path(file).exists() and name.partition("[")[0] in Path(file).read_text("utf-8")


class Recorder:
    """The plugin: listens to the reports of the tests, and shows and writes their durations at the end."""

    def __init__(self, path: Path, *, has_budget: bool, workers: int):
        self._path, self._has_budget, self._workers = path, has_budget, workers
        self._durations = Durations()
        self._began = time.monotonic()
        self._first: float | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._first is None:
            self._first = time.monotonic() - report.duration
        self._durations.add(report.nodeid, report.duration)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        took = time.monotonic() - self._began
        speed = additions()
        folders, files = self._durations.by_folder(), self._durations.by_file()
        terminalreporter.section("durations")
        for line in table(folders, files):
            terminalreporter.write_line(line)
        before = 0.0 if self._first is None else self._first - self._began
        terminalreporter.write_line(
            f"{len(self._durations.by_test)} tests: {self._durations.seconds:.0f} s of {self._workers} workers in {took:.0f} s, "
            f"{before:.0f} s of them before the first test; ten million additions took {speed:.2f} s of the processor"
        )
        if self._has_budget and (excess := beyond(took, speed)):
            for line in (excess, *folders_beyond(folders, speed)):
                terminalreporter.write_line(line, yellow=True)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self._record(folders, files, took, speed), indent=1) + "\n")

    def _record(
        self, folders: Mapping[str, Sum], files: Mapping[str, Sum], took: float, speed: float
    ) -> dict[str, object]:
        def seconds(sums: Mapping[str, Sum]) -> dict[str, float]:
            return {name: round(total.seconds, 2) for name, total in sums.items()}

        return {
            "seconds": round(took, 1),
            "workers": self._workers,
            "additions": round(speed, 3),
            "folders": seconds(folders),
            "files": seconds(files),
            "tests": {
                test: round(spent, 2)
                for test, spent in sorted(self._durations.by_test.items(), key=lambda pair: -pair[1])
                if spent >= SECONDS
            },
        }


def table(folders: Mapping[str, Sum], files: Mapping[str, Sum]) -> Iterator[str]:
    """Yield the lines of a table of all folders, and of the files that take longest."""
    longest = sorted(files.items(), key=lambda pair: -pair[1].seconds)[:FILES]
    for title, sums in (("folder", list(folders.items())), ("file", longest)):
        width = max([len(title), *(len(name) for name, _ in sums)])
        yield f"{title:{width}}  tests  seconds  longest test"
        for name, total in sums:
            yield f"{name:{width}}  {total.tests:5}  {total.seconds:7.1f}  {total.longest:5.1f} {total.name}"
        yield ""


def markdown(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a table of the folders in `tests/` that take longest, and of the others together."""
    sums: defaultdict[str, float] = defaultdict(float)
    for folder, spent in record["folders"].items():
        sums["/".join(folder.split("/")[:2])] += spent
    longest = sorted(sums.items(), key=lambda pair: -pair[1])[:FOLDERS]
    longest.append(("others", sum(sums.values()) - sum(spent for _, spent in longest)))
    yield "| Folder | Seconds |"
    yield "|--------|--------:|"
    yield from (f"| `{folder}` | {spent:.0f} |" for folder, spent in longest)


if __name__ == "__main__":
    recorded = json.loads(Path(sys.argv[1]).read_text())
    if "--budgets" in sys.argv:
        # A folder may have no test in that run.
        shares = dict.fromkeys(budgets(), 0.0) | shared_out(recorded)
        BUDGETS.write_text(json.dumps(dict(sorted(shares.items())), indent=1) + "\n")
    elif "--long" in sys.argv:
        LONG_TESTS.write_text(json.dumps([*filter(exists, with_long_tests(long_tests(), recorded))], indent=1) + "\n")
    else:
        print(*markdown(recorded), sep="\n")
