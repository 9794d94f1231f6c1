"""Which tests run when.

`make test-all` runs all of them. `make test` leaves out those that are marked `thorough`, and takes a sample of the cases of
a test that is marked `one_in`: of `one_in(3)` a third. Tests with a group, such as `one_in(3, of="kills on Spark")`, are cases of
one kind, in whatever files they are. Of the tests that take long, which `long_tests.json` lists, it takes a quarter: they are
three in a hundred, and would take more than half of the time. `make quick` takes a sample of the tests that need no Java and are
not marked `slow`: one of `ONE_IN` tests of each file. Which ones depends on the seed of the run: the next commit has others.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import pytest

ONE_IN = 10
# `make test` takes one of so many tests that take long.
ONE_IN_LONG = 4
# Written by `python -m tests.durations .durations/test.json --long`.
LONG_TESTS = Path(__file__).with_name("long_tests.json")
# What `make quick` leaves out.
LONG = ("spark", "kafka", "slow", "thorough")
_ALL_LONG = re.compile(rf"^pytestmark = (\[[^]]*|.*)\bmark\.({'|'.join(LONG)})\b", re.MULTILINE)


def is_long(path: Path) -> bool:
    """Return whether all tests of a file are left out: to import it would take a good part of the time of `make quick`."""
    return path.suffix == ".py" and path.name.startswith("test_") and bool(_ALL_LONG.search(path.read_text("utf-8")))


def long_tests() -> frozenset[str]:
    """Return the tests of which `make test` takes some, other ones for each commit."""
    return frozenset(json.loads(LONG_TESTS.read_text()))


def usual(items: Sequence[pytest.Item], seed: str) -> list[pytest.Item]:
    """Return the tests of `make test`."""
    tests, long = [item for item in items if not item.get_closest_marker("thorough")], long_tests()
    matrices: defaultdict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in tests:
        if mark := item.get_closest_marker("one_in"):
            matrices[mark.kwargs.get("of") or item.nodeid.partition("[")[0], mark.args[0]].append(item)
        elif item.nodeid in long:
            matrices["tests that take long", ONE_IN_LONG].append(item)
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


def drawn(seed: str, test: str) -> int:
    """Return a number of a test that is another one for each seed.

    It is no checksum: those of two seeds differ by the same bits for all tests, so that some would never be sampled.
    """
    return int.from_bytes(hashlib.sha256(f"{seed} {test}".encode()).digest()[:8], "big")


def _sampled(tests: Sequence[pytest.Item], seed: str, one_in: int) -> list[pytest.Item]:
    """Return one of so many tests, in their order, and at least one."""
    order = sorted(range(len(tests)), key=lambda place: drawn(seed, tests[place].nodeid))
    return [tests[place] for place in sorted(order[: -(-len(tests) // one_in)])]
