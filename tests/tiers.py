"""Which tests run when.

`make test-all` runs all of them. `make test` leaves out those that are marked `thorough`, and takes a sample of the cases of
a test that is marked `one_in`: of `one_in(3)` a third. Tests with a group, such as `one_in(3, of="kills on Spark")`, are cases of
one kind, in whatever files they are. `make quick` takes a sample of the tests that need no Java and are not marked `slow`: one of
`ONE_IN` tests of each file. Which ones depends on the seed of the run: the next commit has others.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import pytest

ONE_IN = 10
# What `make quick` leaves out.
LONG = ("spark", "kafka", "slow", "thorough")
_ALL_LONG = re.compile(rf"^pytestmark = (\[[^]]*|.*)\bmark\.({'|'.join(LONG)})\b", re.MULTILINE)


def is_long(path: Path) -> bool:
    """Return whether all tests of a file are left out: to import it would take a good part of the time of `make quick`."""
    return path.suffix == ".py" and path.name.startswith("test_") and bool(_ALL_LONG.search(path.read_text("utf-8")))


def usual(items: Sequence[pytest.Item], seed: str) -> list[pytest.Item]:
    """Return the tests of `make test`."""
    tests = [item for item in items if not item.get_closest_marker("thorough")]
    matrices: defaultdict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in tests:
        if mark := item.get_closest_marker("one_in"):
            matrices[mark.kwargs.get("of") or item.nodeid.partition("[")[0], mark.args[0]].append(item)
    left_out = {id(item) for cases in matrices.values() for item in cases}
    for (_, one_in), cases in matrices.items():
        left_out -= {*map(id, _sampled(cases, seed, one_in))}
    return [item for item in tests if id(item) not in left_out]


def quick(items: Sequence[pytest.Item], seed: str) -> list[pytest.Item]:
    """Return the tests of `make quick`, of each file with short tests at least one."""
    short = [item for item in items if not any(map(item.get_closest_marker, LONG))]
    sample: list[pytest.Item] = []
    for _, tests in groupby(short, lambda item: item.path):
        sample += _sampled(list(tests), seed, ONE_IN)
    return sample


# What each tier takes of all tests, given the seed of the run.
TIERS: dict[str, Callable[[Sequence[pytest.Item], str], list[pytest.Item]]] = {
    "quick": quick,
    "test": usual,
    "all": lambda items, seed: list(items),
}


def _sampled(tests: Sequence[pytest.Item], seed: str, one_in: int) -> list[pytest.Item]:
    """Return one of so many tests, in their order, and at least one."""
    order = sorted(range(len(tests)), key=lambda place: zlib.crc32(f"{seed} {tests[place].nodeid}".encode()))
    return [tests[place] for place in sorted(order[: -(-len(tests) // one_in)])]
