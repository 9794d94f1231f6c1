"""Which tests `make quick` takes, the seed of a run, and the table of durations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import dealt
from tests.durations import (
    ADDITIONS,
    BUDGET,
    FOLDERS,
    WORKERS,
    Durations,
    Sum,
    beyond,
    budgets,
    folders_beyond,
    markdown,
    shared_out,
    table,
    with_long_tests,
)
from tests.seed import commit_seed
from tests.tiers import ONE_IN, ONE_IN_LONG, is_long, long_tests, quick, usual

ROOT = Path(__file__).parents[1]


def item(path: str, number: int, *markers: str, one_in: int = 0, **group: str) -> Any:
    """Return what is looked at of a test."""
    marks = {name: SimpleNamespace(args=(), kwargs={}) for name in markers}
    if one_in:
        marks["one_in"] = SimpleNamespace(args=(one_in,), kwargs=group)
    return SimpleNamespace(
        path=Path(path),
        nodeid=f"{path}::test_{number}",
        get_closest_marker=marks.get,
    )


def names(items: Sequence[Any]) -> list[str]:
    return [item.nodeid for item in items]


def test_quick_takes_some_short_tests_of_each_file_and_others_with_another_seed() -> None:
    many = [item("many.py", number) for number in range(10 * ONE_IN)]
    one = [item("one.py", 0), item("one.py", 1, "slow"), item("one.py", 2, "thorough")]
    long = [item("long.py", 0, "spark"), item("long.py", 1, "kafka")]
    sample = quick([*many, *one, *long], "a")
    assert len(sample) == 10 + 1
    assert sample[-1] is one[0]
    assert names(sample) == names(quick([*many, *one, *long], "a"))
    assert names(sample) != names(quick([*many, *one, *long], "b"))
    # Over time all come.
    assert {name for seed in range(100) for name in names(quick(many, str(seed)))} == {*names(many)}


def test_make_test_takes_some_cases_of_a_test_that_is_sampled() -> None:
    others = [item("x.py", 0), item("x.py", 1, "slow"), item("x.py", 2, "thorough")]
    cases = [item(f"x.py::test[{number}]", 0, one_in=3) for number in range(7)]
    tests = usual([*others, *cases], "a")
    assert tests[:2] == others[:2]
    assert len(tests) == 2 + 3
    assert names(tests) == names(usual([*others, *cases], "a"))
    assert {name for seed in range(100) for name in names(usual(cases, str(seed)))} == {*names(cases)}


def test_tests_of_several_files_can_be_cases_of_one_kind() -> None:
    cases = [item(f"{file}.py", number, one_in=4, of="kills") for file in "abcd" for number in range(2)]
    others = [item("a.py", 2, one_in=4), item("a.py", 3, one_in=4, of="pages")]
    assert len(usual(cases, "a")) == 2
    assert usual([*cases, *others], "a")[2:] == others
    assert {name for seed in range(100) for name in names(usual(cases, str(seed)))} == {*names(cases)}


def test_make_test_takes_a_part_of_the_tests_that_take_long() -> None:
    def test(nodeid: str, **marker: Any) -> Any:
        found = item("x.py", 0, **marker)
        found.nodeid = nodeid
        return found

    cases = [test(nodeid) for nodeid in sorted(long_tests())]
    assert len(usual(cases, "a")) == -(-len(cases) // ONE_IN_LONG)
    assert {name for seed in range(100) for name in names(usual(cases, str(seed)))} == {*names(cases)}
    # Cases of a test that is sampled are not sampled again.
    sampled = test(cases[0].nodeid, one_in=2)
    assert usual([sampled], "a") == [sampled]
    assert len(usual([sampled, *cases[1:]], "a")) == 1 + -(-(len(cases) - 1) // ONE_IN_LONG)


def test_what_takes_long_is_read_from_a_recorded_run() -> None:
    spent = {
        "tests/a/test_x.py::test_long": 3.0,
        "tests/a/test_x.py::test_short": 2.9,
        "tests/test_y.py::test_code": 9.0,
    }
    known = ["tests/a/test_x.py::test_of_another_run"]
    record = {"additions": ADDITIONS, "tests": spent}
    assert with_long_tests(known, record) == ["tests/a/test_x.py::test_long", *known]
    # On a machine of twice the speed it takes half as long.
    assert len(with_long_tests(known, record | {"additions": ADDITIONS / 2})) == 3


def test_workers_begin_with_what_waits_and_one_has_all_that_share_a_jvm() -> None:
    def file(name: str, count: int, *markers: str, shares: bool = False) -> list[Any]:
        tests = [item(name, number, *markers) for number in range(count)]
        for test in tests:
            test.fixturenames = ["shared_jvm"] if shares else []
        return tests

    kafka = [*file("k1.py", 2, "kafka"), *file("k2.py", 3, "kafka")]
    shared = [*file("s1.py", 4, "spark", shares=True), *file("s2.py", 2, "spark", shares=True)]
    alone = [*file("a1.py", 1, "spark"), *file("a2.py", 2, "spark")]
    computing = file("c.py", 40)
    items = [*alone, *computing, *kafka, *shared]
    order = dealt(items, 3)
    assert sorted(names(order)) == sorted(names(items))
    end = len(items) // 3
    first, second, third = order[:end], order[end : 2 * end], order[2 * end :]
    assert names(first[:8]) == names([*kafka[:2], *shared[4:], *shared[:4]])
    assert names(second[:6]) == names([*kafka[2:], *alone])
    assert {*names(third)} <= {*names(computing)}


@pytest.mark.parametrize(
    ("line", "long"),
    [
        ("pytestmark = pytest.mark.slow", True),
        ("pytestmark = [pytest.mark.kafka, pytest.mark.slow]", True),
        ("pytestmark = [\n    pytest.mark.skipif(True, reason='['),\n    pytest.mark.spark,\n]", True),
        ("pytestmark = pytest.mark.usefixtures('slow')\n\n@pytest.mark.slow", False),
        ("@pytest.mark.slow\ndef test() -> None: ...", False),
    ],
)
def test_a_file_of_long_tests_is_not_imported(tmp_path: Path, line: str, long: bool) -> None:
    path = tmp_path / "test_x.py"
    path.write_text(f"import pytest\n\n{line}\n")
    assert is_long(path) == long


def test_the_seed_is_the_commit(tmp_path: Path) -> None:
    assert re.fullmatch("[0-9a-f]+", commit_seed())
    assert commit_seed(tmp_path) == "0"


def test_durations_are_summed_by_folder_and_file() -> None:
    sums = Durations()
    for test, seconds in (
        ("tests/a/test_x.py::test_one", 1.0),
        ("tests/a/test_x.py::test_one", 2.5),
        ("tests/a/test_y.py::test_two[a/b::c]", 4.0),
        ("tests/test_z.py::test_three", 0.25),
    ):
        sums.add(test, seconds)
    assert sums.seconds == 7.75
    folders, files = sums.by_folder(), sums.by_file()
    assert {name: (total.tests, total.seconds) for name, total in folders.items()} == {
        "tests": (1, 0.25),
        "tests/a": (2, 7.5),
    }
    assert list(files) == ["tests/a/test_x.py", "tests/a/test_y.py", "tests/test_z.py"]
    lines = list(table(folders, files))
    assert lines[:3] == [
        "folder   tests  seconds  longest test",
        "tests        1      0.2    0.2 test_three",
        "tests/a      2      7.5    4.0 test_two[a/b::c]",
    ]
    assert lines[5].startswith("tests/a/test_y.py")


def test_a_recorded_run_is_a_table_of_its_longest_folders() -> None:
    folders = {f"tests/{number:02}": float(number) for number in range(FOLDERS + 2)}
    lines = [*markdown({"folders": folders | {"tests/09/x": 100.0}})]
    assert lines[2:4] == ["| `tests/09` | 109 |", f"| `tests/{FOLDERS + 1}` | {FOLDERS + 1} |"]
    assert lines[-1] == "| `others` | 1 |"
    assert len(lines) == 2 + FOLDERS + 1


def test_a_run_has_a_budget() -> None:
    assert beyond(BUDGET, ADDITIONS) is None
    assert beyond(BUDGET + 1, ADDITIONS) == "beyond the budget: 901 s of 900 s, which are 900 s at 0.5 s"
    # A machine of half the speed may take twice as long.
    assert beyond(2 * BUDGET, 2 * ADDITIONS) is None


def test_each_folder_has_a_budget_and_together_they_have_that_of_the_run() -> None:
    known = budgets()
    folders = {str(path.parent.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")}
    assert folders <= {*known}
    assert sum(known.values()) <= BUDGET * WORKERS + len(known)


def test_a_folder_beyond_its_budget_is_named() -> None:
    folder, seconds = max(budgets().items(), key=lambda pair: pair[1])
    assert not [*folders_beyond({folder: Sum(1, seconds)}, ADDITIONS)]
    [line] = folders_beyond({folder: Sum(1, 2 * seconds)}, ADDITIONS)
    assert line == f"beyond its budget: {folder}, {2 * seconds:.0f} s of {seconds:.0f} s"
    assert not [*folders_beyond({folder: Sum(1, 2 * seconds)}, 2 * ADDITIONS)]
    assert [*folders_beyond({"tests/new": Sum(1, 100.0)}, ADDITIONS)] == ["beyond its budget: tests/new, 100 s of 0 s"]


def test_the_budget_is_shared_out_as_it_was_spent() -> None:
    shares = shared_out({"folders": {"tests/a": 30.0, "tests/b": 10.0}})
    assert shares == {"tests/a": BUDGET * WORKERS * 0.75, "tests/b": BUDGET * WORKERS * 0.25}


def test_options_of_our_own_are_one_word_in_the_makefile() -> None:
    """Until pytest has read conftest.py it takes what follows an option for a path: a file that exists hides the tests."""
    makefile = (ROOT / "Makefile").read_text()
    assert re.findall(r"--(?:tier|durations-to)(.)", makefile) == ["="] * 3
