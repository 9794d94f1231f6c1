"""Each cell of the table of guarantees: a job with a source and a sink of these kinds, killed again and again."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from sqlstream.catalog import Table
from sqlstream.compiler.compiler import Compiler
from sqlstream.connectors.tables import guarantee
from sqlstream.errors import SourceText
from tests.connectors.mortal_jobs import CELLS, ROWS, script

# Of each job.
KILLS = 3
ONCE, AT_LEAST, AT_MOST, NO_GUARANTEE = "exactly once", "at least once", "at most once", "no guarantee"
SAID = {
    ("Kept", "AnySink"): AT_LEAST,
    ("Kept", "IdempotentSink"): ONCE,
    ("Kept", "Ahead"): AT_LEAST,
    ("Kept", "TwoPhases"): ONCE,
    ("Gone", "AnySink"): NO_GUARANTEE,
    ("Gone", "IdempotentSink"): AT_MOST,
    ("Gone", "Ahead"): NO_GUARANTEE,
    ("Gone", "TwoPhases"): AT_MOST,
}


@pytest.mark.slow
def test_each_cell_of_the_table_holds_under_kills(tmp_path: Path) -> None:
    moments = random.Random(13)
    command = [sys.executable, str(Path(__file__).parent / "mortal_jobs.py"), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as lives:

        def live(points: int, first: int = 0) -> int:
            assert lives.stdin is not None
            assert lives.stdout is not None
            print(points, first, file=lives.stdin, flush=True)
            return int(lives.stdout.readline())

        for first in moments.sample([*range(len(CELLS))] * KILLS, len(CELLS) * KILLS):
            # A batch has about ten points.
            assert live(moments.randint(1, 12), first) == -signal.SIGKILL
            for cell in CELLS:
                check(tmp_path, cell, complete=False)
        assert live(0) == 0
    for cell in CELLS:
        check(tmp_path, cell, complete=True)
    # The kills were such that what may happen did.
    assert max(written(tmp_path, ("Kept", "AnySink")).values()) > 1
    assert max(written(tmp_path, ("Kept", "Ahead")).values()) > 1
    assert len(written(tmp_path, ("Gone", "TwoPhases"))) < ROWS
    assert not list(tmp_path.glob("*/*.prepared"))
    assert not list(tmp_path.glob("*/*.open"))
    [commits] = (tmp_path / "warehouse" / "jobs").glob("*ept*wo*hases/checkpoint/commits")
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    assert (tmp_path / "Kept_TwoPhases" / "version").read_text() == str(last)


def check(project: Path, cell: tuple[str, str], *, complete: bool) -> None:
    rows = written(project, cell)
    assert set(rows) <= set(range(ROWS))
    if SAID[cell] in (ONCE, AT_MOST):
        assert max(rows.values(), default=1) == 1, (cell, rows)
    if complete and SAID[cell] in (ONCE, AT_LEAST):
        assert len(rows) == ROWS, (cell, rows)


def written(project: Path, cell: tuple[str, str]) -> Counter[int]:
    files = (project / "_".join(cell)).glob("*.done")
    return Counter(int(line) for file in files for line in file.read_text().splitlines())


def test_the_table_follows_from_what_the_classes_declare(tmp_path: Path) -> None:
    compiler = Compiler()
    try:
        list(compiler.scripts([SourceText("test", script(str(tmp_path)))]))
        for source, sink in CELLS:
            tables = [compiler.catalog.relation(name) for name in (f"from_{source}_{sink}", f"{source}_{sink}")]
            read, written = (table for table in tables if isinstance(table, Table))
            assert guarantee([read], written).partition(":")[0].partition(",")[0] == SAID[source, sink]
    finally:
        compiler.close()
