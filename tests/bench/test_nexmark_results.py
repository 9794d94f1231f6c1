"""The figures of Nexmark that the manual states are those of the recorded runs. `--update` writes them anew."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.bench.nexmark_results import RECORDED, Recorded, conditions, ratios, read, summary, table
from tests.bench.rates import Point, Rate, warm_rate

ROOT = Path(__file__).parents[2]
# A page, and what stands in it between the marks.
_BLOCK = re.compile(r"<!-- nexmark: (?P<name>\w+) -->\n.*?<!-- end -->\n", re.DOTALL)
_ROW = re.compile(r"^\| Nexmark, from files \|.*$", re.MULTILINE)
PAGES = ("examples/nexmark/README.md", "sqlstream/docs/performance.md")


def _texts() -> dict[str, str]:
    runs = read()
    slower = sorted((ratio, query) for query, ratio in ratios(runs).items() if ratio < 1)
    behind = ", ".join(f"{query} ({ratio:.2f} x)" for ratio, query in slower) or "none"
    return {
        "table": f"{table(runs)}\n\n{conditions(runs)}\n",
        "summary": f"Over Parquet files, on 2 cores: {summary(runs)}. Slower than Flink's heap state: {behind}.\n",
    }


@pytest.mark.parametrize("name", PAGES)
def test_pages_state_what_was_measured(name: str, request: pytest.FixtureRequest) -> None:
    path, texts = ROOT / name, _texts()
    text = path.read_text("utf-8")
    assert _BLOCK.search(text), f"{name} has no figures"
    made = _BLOCK.sub(lambda found: f"<!-- nexmark: {found['name']} -->\n{texts[found['name']]}<!-- end -->\n", text)
    if request.config.getoption("update"):
        path.write_text(made, "utf-8")
    else:
        assert made == text, f"{path}: `pytest {__file__} --update` writes the figures anew"


def test_the_readme_states_what_was_measured(request: pytest.FixtureRequest) -> None:
    path = ROOT / "README.md"
    text = path.read_text("utf-8")
    events, compared = summary(read()).split("; ", 1)
    made = _ROW.sub(f"| Nexmark, from files | {events} | {compared} |", text)
    assert _ROW.search(text)
    if request.config.getoption("update"):
        path.write_text(made, "utf-8")
    else:
        assert made == text, f"{path}: `pytest {__file__} --update` writes the figures anew"


def test_recorded_runs_are_those_of_one_input_and_fit_their_time() -> None:
    runs = read()
    assert runs, f"{RECORDED} has no runs"
    for query in {run.query for run in runs}:
        assert len({run.events for run in runs if run.query == query}) == 1, query
    for run in runs:
        assert 0 <= run.rows <= run.events, run
        assert run.seconds <= run.whole_seconds, run


def test_a_table_has_medians_with_their_range_and_ratios() -> None:
    def run(system: str, seconds: float) -> Recorded:
        return Recorded("q5", system, 4_000_000, 3_000_000, seconds, 2 * seconds, "c0ffee00", "2026-11-28", 0.57)

    runs = [run("sqlstream", 3.0), run("sqlstream", 4.0), run("sqlstream", 2.0), run("Flink, heap", 6.0)]
    assert table(runs).splitlines()[-1] == "| q5 | 4 M | 1.00 M (750 k to 1.50 M) | 500 k | 2.00 x | 6 s, 12 s |"
    assert table([run("Flink, RocksDB", 6.0)]).splitlines()[-1] == "| q5 | 4 M | 500 k | 12 s |"
    assert ratios(runs) == {"q5": 2.0}
    assert summary(runs) == "1.00 M to 1.00 M events/s; 2.00 to 2.0 (median 2.00) x Flink, heap"
    assert warm_rate([Point(1_000_000, 1.0), Point(4_000_000, 4.0)], 4_000_000, 5.0) == Rate(3_000_000, 3.0)
