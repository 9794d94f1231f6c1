"""Ties that the order of arrival decides on three tasks of Spark, whose process is killed between batches, or in one."""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sqlstream.queries.query import open_query
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.paths import Warehouse
from tests.arrival.cases import ROWS, in_order, right, script
from tests.arrival.sources import SOURCES, Constants, Feed, JsonLines, feed_of
from tests.forked import Forked, start_python
from tests.processes import SECONDS, kill_group, wait_until, wait_with

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.thorough]
OWN = "from datetime import datetime\nimport json\n\nimport pyarrow as pa\n\nfrom sqlstream.connectors import Source\n\n\n"
SETTINGS = (
    "SET 'pipeline.name' = 'job';\nSET 'parallelism.default' = '3';\nSET 'sqlstream.unbounded-state' = 'allow';\n"
)


@pytest.fixture
def feed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Feed]:
    (tmp_path / "udfs").mkdir()
    (tmp_path / "udfs" / "own.py").write_text(OWN + inspect.getsource(JsonLines))
    yield from feed_of(request, tmp_path, "own")


def start(project: Path) -> Forked:
    return start_python("-m", "sqlstream", "run", "job.sql", cwd=project, own_group=True)


def version(warehouse: Warehouse) -> int:
    committed = last_committed(warehouse.fs, warehouse.job("job"))
    return -1 if committed is None else committed


@pytest.mark.parametrize("feed", SOURCES, indirect=True)
def test_kills_change_no_order(feed: Feed, tmp_path: Path) -> None:
    feed.put(ROWS)
    (tmp_path / "job.sql").write_text(SETTINGS + feed.tables(live=False) + script(feed.cases()))
    warehouse, moments, kills = Warehouse(str(tmp_path / "warehouse")), random.Random(3), 0
    for _ in range(2):
        before, run = version(warehouse), start(tmp_path)
        wait_until(lambda before=before, run=run: version(warehouse) > before or run.poll() is not None)
        # It is killed at a moment of chance: between batches, or in one.
        time.sleep(moments.uniform(0, 0.5))
        if run.poll() is None:
            kill_group(run)
            kills += 1
    output, _ = (run := start(tmp_path)).communicate(timeout=SECONDS)
    assert run.returncode == 0, output
    assert kills
    for case in feed.cases():
        assert in_order(open_query(warehouse, f"FROM {case.name}").fetchall()) == right(case), case.name


def test_a_kill_changes_no_order_of_values(tmp_path: Path) -> None:
    """All rows are in one batch: it is killed there, as its descriptor says that it has begun."""
    feed = Constants()
    feed.put(ROWS)
    (tmp_path / "job.sql").write_text(SETTINGS + feed.tables(live=False) + script(feed.cases()))
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    splits = Path(warehouse.job("job").splits)
    run = start(tmp_path)
    wait_with(run, lambda: splits.is_dir() and any(splits.iterdir()))
    assert version(warehouse) == -1
    kill_group(run)
    output, _ = (run := start(tmp_path)).communicate(timeout=SECONDS)
    assert run.returncode == 0, output
    for case in feed.cases():
        assert in_order(open_query(warehouse, f"FROM {case.name}").fetchall()) == right(case), case.name
