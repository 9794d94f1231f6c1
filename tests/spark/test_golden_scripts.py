"""A sample of the golden scripts, on Spark. `pytest --spark tests/slt` runs them all."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden import Case, compare, parse, shown_by
from tests.slt_functions import FUNCTIONS
from tests.slt_spark import OnSpark

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCRIPTS = Path(__file__).parents[1] / "slt"
# One case in so many; which ones depends on their names alone.
ONE_IN = 6


def sample() -> Iterator[object]:
    for path in sorted(SCRIPTS.glob("*.slt")):
        for case in parse(path):
            batches = any(record.verb == "batch" for record in case.records)
            name = f"{path.stem}: {case.name}"
            if batches and zlib.crc32(name.encode()) % ONE_IN == 0:
                yield pytest.param(path, case, id=name)


@pytest.fixture(scope="module", autouse=True)
def one_jvm() -> Iterator[None]:
    yield
    OnSpark.stop()


@pytest.mark.parametrize(("path", "case"), list(sample()))
def test_a_case_shows_the_same_on_spark(path: Path, case: Case) -> None:
    for record, shown in shown_by(case, OnSpark(FUNCTIONS)):
        compare(path, record, shown)
