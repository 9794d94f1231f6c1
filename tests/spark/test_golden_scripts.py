"""A sample of the golden scripts, on Spark: a part of it in `make test`. `pytest --spark tests/slt` runs all scripts."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.golden import Case, compare, named, parse, shown_by
from tests.slt_functions import FUNCTIONS
from tests.slt_spark import ONLY_IN_PROCESS, OnSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCRIPTS = Path(__file__).parents[1] / "slt"
# One case in so many, of those that cost no more than `COST`; which ones depends on their names alone. Of a script without
# such a case it is the one that costs least.
ONE_IN = 9
COST = 16
# One of the sample in so many is in `make test`, others for each commit.
ONE_IN_TEST = 30
# Cases of each kind of Python function, and of operators that wait for different sources, whatever chance says. A script has
# `MOST` of them at most, and `make test` takes one.
MOST = 3
ALWAYS = (
    "broadcast: a map for all keys",
    "changing_process_functions: operators above upserts take them as a changing input",
    "changing_process_functions: rows are added and taken away",
    "changing_process_functions: timers take rows away",
    "operator_watermarks: statement set",
    "operator_watermarks: union",
    "process_functions: a side output beside the rows of a query, without keys",
    "process_functions: older versions of values, lists, maps and timers",
    "process_functions: several tables",
    "process_in_order: several tables in one order",
    "udaf: over rows that change",
    "udtf: changes that come from outside",
    "vectorized_process_functions: keys that are not returned stay as they are, and those returned with NULLs are cleared",
    "vectorized_process_functions: the rows of a key are a table",
)


def cost(case: Case) -> int:
    """Count how often jobs start and how many batches they take, a start as two batches."""
    jobs = total = 0
    for record in case.records:
        if record.verb == "statement":
            started = "\n".join(record.body).upper().count("INSERT INTO")
            jobs += started
            total += 2 * started
        elif record.verb == "restart":
            total += 2 * jobs
        elif record.verb in ("batch", "finish"):
            total += jobs
    return total


def sample() -> Iterator[object]:
    for path in sorted(SCRIPTS.glob("*.slt")):
        cases = [case for case in parse(path) if runs_on_spark(case)]
        chosen = [c for c in cases if cost(c) <= COST and zlib.crc32(name(path, c).encode()) % ONE_IN == 0]
        chosen = [c for c in chosen or sorted(cases, key=cost)[:1] if name(path, c) not in ALWAYS]
        for case in [*chosen, *always(path)]:
            title = name(path, case)
            one_in, of = (MOST, f"{path.stem} on Spark") if title in ALWAYS else (ONE_IN_TEST, "golden cases on Spark")
            yield pytest.param(path, case, id=title, marks=pytest.mark.one_in(one_in, of=of))


def always(path: Path) -> Iterator[Case]:
    """Return those of a script's cases that are always run, without the plans: these are compared in process."""
    for case in parse(path):
        if name(path, case) in ALWAYS:
            yield replace(case, records=[record for record in case.records if record.verb != "explain"])


def name(path: Path, case: Case) -> str:
    return f"{path.stem}: {case.name}"


def runs_on_spark(case: Case) -> bool:
    """Whether a case is about batches, which come as files: a folder that a case declares must be one that is watched."""
    verbs = {record.verb for record in case.records}
    text = "\n".join(line for record in case.records for line in record.body)
    watched = "'path'" not in text or "source.monitor-interval" in text
    return "batch" in verbs and not verbs & ONLY_IN_PROCESS and watched


def test_there_are_the_cases_that_are_always_run() -> None:
    scripts = {path: [name(path, case) for case in always(path)] for path in SCRIPTS.glob("*.slt")}
    assert {title for titles in scripts.values() for title in titles} == set(ALWAYS)
    assert max(map(len, scripts.values())) == MOST


@pytest.fixture(autouse=True)
def one_jvm(shared_jvm: Callable[[], SparkSession]) -> Iterator[None]:
    """Run cases on the JVM that tests share, which `OnSpark` must not remember: others may stop it."""
    yield
    OnSpark._spark = None


@pytest.mark.parametrize(("path", "case"), list(sample()))
def test_a_case_shows_the_same_on_spark(path: Path, case: Case) -> None:
    for record, shown in shown_by(case, OnSpark(named(case, FUNCTIONS))):
        compare(path, record, shown)
