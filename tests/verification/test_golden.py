"""Every case of a golden script ends with `verify` (see `golden.shown_by`): it compares, and finds a bug."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sqlstream.operators.windows.assigners import Arrival, AssignedWindows
from tests import golden

SCRIPTS = Path(__file__).parents[1] / "slt"
CASE = """
statement
CREATE TABLE t (k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts);
CREATE TABLE counts (k INT, n BIGINT);
INSERT INTO counts SELECT k, COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY k, window_start, window_end

batch t
1, 10:00:01
1, 10:00:02

restart

batch t
2, 10:00:03
1, 10:00:12
"""


@pytest.mark.slow
def test_jobs_of_a_script_are_compared() -> None:
    compared = 0
    for case in golden.parse(SCRIPTS / "group_windows.slt"):
        runner = golden.InProcess()
        try:
            for _ in golden.run(case, runner):
                pass
            compared += runner.verify()
        finally:
            runner.close()
    assert compared >= 4


@pytest.mark.parametrize("is_wrong", [False, True])
def test_a_bug_in_an_operator_is_found_that_no_result_of_the_case_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_wrong: bool
) -> None:
    right = AssignedWindows.arrive

    def wrong(self: AssignedWindows, rows: pa.Table, watermark: Any) -> Arrival:
        arrival = right(self, rows, watermark)
        return dataclasses.replace(arrival, before=arrival.before.slice(1))

    if is_wrong:
        monkeypatch.setattr(AssignedWindows, "arrive", wrong)
    path = tmp_path / "counts.slt"
    path.write_text(CASE)
    [case] = golden.parse(path)
    if not is_wrong:
        assert [*golden.shown_by(case, golden.InProcess())] == []
        return
    with pytest.raises(golden.Different, match="NOT EXPLAINED"):
        [*golden.shown_by(case, golden.InProcess())]
