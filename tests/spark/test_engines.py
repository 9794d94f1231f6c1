"""A job goes from one engine to the other: the state of every kind of operator, positions, timers and batches that had begun."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.paths import Warehouse
from tests.forked import Forked, start_python
from tests.formats.make_kinds import FUNCTION, SCRIPT, put
from tests.formats.test_kinds import JOB, Results, run
from tests.processes import kill_group, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow]
FILES = ("a", "b", "c")


def project(folder: Path) -> Path:
    (folder / "udfs").mkdir(parents=True)
    (folder / "udfs" / "totals.py").write_text(FUNCTION)
    (folder / "kinds.sql").write_text(SCRIPT.read_text())
    return folder


def start(folder: Path, engine: str) -> Forked:
    return start_python("-m", "sqlstream", "run", "--engine", engine, "kinds.sql", cwd=folder, own_group=True)


def version(folder: Path) -> int:
    warehouse = Warehouse(str(folder / "warehouse"))
    committed = last_committed(warehouse.fs, warehouse.job(JOB))
    return -1 if committed is None else committed


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = project(tmp_path_factory.mktemp("unbroken"))
    for name in FILES:
        put(folder, name)
    return run(folder, SCRIPT.read_text(), FILES)


@pytest.mark.parametrize("first", ["spark", "local"])
@pytest.mark.one_in(2)
def test_kills_between_engines_change_nothing(first: str, tmp_path: Path, expected: Results) -> None:
    """Each engine is killed at a moment of chance after a batch, and the other one goes on."""
    folder, moments = project(tmp_path / "project"), random.Random(first)
    other = {"spark": "local", "local": "spark"}
    engine = first
    for name in FILES:
        put(folder, name)
        before, process = version(folder), start(folder, engine)
        wait_until(lambda before=before, process=process: version(folder) > before or process.poll() is not None)
        time.sleep(moments.uniform(0, 0.2))
        assert process.poll() is None, process.communicate()[0]
        kill_group(process)
        engine = other[engine]
    assert run(folder, SCRIPT.read_text(), FILES) == expected
