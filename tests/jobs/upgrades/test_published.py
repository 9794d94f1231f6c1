"""Published tables of jobs that go on with a changed query: other engines read what the warehouse has, every row once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sqlstream import SqlStreamError
from tests.jobs.savepoint_jobs import FIRST, INPUT, SECOND, THIRD, put
from tests.jobs.upgrades.upgrade_jobs import go_on, rows_of

WINDOWS = """
CREATE TABLE windows (k BIGINT, n BIGINT{column}) WITH ('sqlstream.publish' = 'delta');
INSERT INTO windows WITH by_window AS (
    SELECT k, count(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY k, window_start, window_end
) SELECT k, n{value} FROM by_window;
"""


def windows(value: str = "", column: str = "") -> str:
    return INPUT + WINDOWS.format(column=column, value=value)


BOTH = """
CREATE TABLE windows (k BIGINT, n BIGINT) WITH ('sqlstream.publish' = 'delta');
CREATE TABLE copies (k BIGINT) {options};
SET 'pipeline.name' = 'windows';
EXECUTE STATEMENT SET BEGIN
INSERT INTO windows WITH by_window AS (
    SELECT k, count(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY k, window_start, window_end
) SELECT k, n FROM by_window;
INSERT INTO copies SELECT k FROM t;
END;
"""


def check(folder: Path, expected: list[tuple[int, int]]) -> None:
    table = DeltaTable(f"{folder}/warehouse/published/windows").to_pyarrow_table()
    assert sorted(tuple(row.values()) for row in table.to_pylist()) == expected
    assert Counter(rows_of(folder, "FROM windows")) == Counter(expected)


def test_rows_stay_published_once_and_columns_as_they_are(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    go_on(tmp_path, windows(), FIRST)
    put(tmp_path, "b", SECOND)
    every = [*FIRST, *SECOND]
    go_on(tmp_path, windows(" * 10"), every, upgrade=True)
    check(tmp_path, [(1, 2), (1, 10), (2, 1), (2, 10), (3, 10)])
    with pytest.raises(SqlStreamError) as refused:
        go_on(tmp_path, windows(" * 10, 1", ", one BIGINT"), every, upgrade=True)
    assert 'table "windows": it is published with other columns' in (refused.value.detail or "")
    # The job is what it was.
    put(tmp_path, "c", THIRD)
    go_on(tmp_path, windows(" * 10"), [*every, *THIRD])
    check(tmp_path, [(1, 2), (1, 10), (1, 20), (2, 1), (2, 10), (3, 10), (4, 10)])


def test_a_table_that_is_not_written_any_more_is_not_published_any_more(tmp_path: Path) -> None:
    both = INPUT + BOTH.format(options="WITH ('sqlstream.publish' = 'delta')")
    put(tmp_path, "a", FIRST)
    go_on(tmp_path, both, FIRST)
    assert len(DeltaTable(f"{tmp_path}/warehouse/published/copies").to_pyarrow_table()) == len(FIRST)
    put(tmp_path, "b", SECOND)
    every = [*FIRST, *SECOND]
    go_on(tmp_path, windows(), every, upgrade=True)
    check(tmp_path, [(1, 1), (1, 2), (2, 1), (2, 1), (3, 1)])
    assert not Path(tmp_path, "warehouse/published/copies").exists()
    # What is published of others stays, and the table comes back with its rows, once the job writes it again.
    go_on(tmp_path, both, every, upgrade=True)
    put(tmp_path, "c", THIRD)
    go_on(tmp_path, both, [*every, *THIRD])
    published = DeltaTable(f"{tmp_path}/warehouse/published/copies").to_pyarrow_table()["k"].to_pylist()
    assert sorted(published) == sorted(k for k, _ in THIRD)
