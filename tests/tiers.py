"""Which tests run when.

`make test-all` runs all of them, `make test` those that are not marked `thorough`, and `make quick` a sample of those that need
no Java and are not marked `slow`: one of `ONE_IN` tests of each file. Which ones depends on the seed of the run: the next commit
has others.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pytest

ONE_IN = 8
# What `make quick` leaves out.
LONG = ("spark", "kafka", "slow", "thorough")
_ALL_LONG = re.compile(rf"^pytestmark = (\[[^]]*|.*)\bmark\.({'|'.join(LONG)})\b", re.MULTILINE)


def is_long(path: Path) -> bool:
    """Return whether all tests of a file are left out: to import it would take a good part of the time of `make quick`."""
    return path.suffix == ".py" and path.name.startswith("test_") and bool(_ALL_LONG.search(path.read_text("utf-8")))


def quick(items: Sequence[pytest.Item], seed: str) -> list[pytest.Item]:
    """Return the tests of `make quick`, of each file with short tests at least one."""
    short = [item for item in items if not any(map(item.get_closest_marker, LONG))]
    sample: list[pytest.Item] = []
    for _, tests in groupby(short, lambda item: item.path):
        sample += _sampled(list(tests), seed)
    return sample


def _sampled(tests: Sequence[pytest.Item], seed: str) -> list[pytest.Item]:
    """Return one of `ONE_IN` tests of a file, in their order, and at least one."""
    order = sorted(range(len(tests)), key=lambda place: zlib.crc32(f"{seed} {tests[place].nodeid}".encode()))
    return [tests[place] for place in sorted(order[: -(-len(tests) // ONE_IN)])]
