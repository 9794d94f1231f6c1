"""Results with floating-point numbers are taken back exactly as they were emitted, in whatever order rows are read."""

from __future__ import annotations

import random

import pytest

from sqlstream.testing import Stream

pytestmark = pytest.mark.slow

BATCHES, ROWS = 4, 1000
COMING_AND_GOING = "(SELECT * FROM a EXCEPT ALL SELECT * FROM b)"


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT k, SUM(x), STDDEV_POP(x) FROM {COMING_AND_GOING} GROUP BY k",
        "SELECT k, SUM(DISTINCT x), AVG(DISTINCT x) FROM a GROUP BY k",
    ],
)
def test_a_result_takes_itself_back(query: str) -> None:
    numbers = random.Random(1)
    script = f"""CREATE TABLE a (k INT, x DOUBLE); CREATE TABLE b (k INT, x DOUBLE);
        CREATE TABLE out (k INT, total DOUBLE, more DOUBLE); INSERT INTO out {query}"""
    rows: list[tuple[int, float]] = []
    with Stream(script) as stream:
        for _ in range(BATCHES):
            new = [(numbers.randrange(3), numbers.choice([1e16, -1e16, 0.1]) * numbers.random()) for _ in range(ROWS)]
            rows += new
            stream.batch("a", new)
            if COMING_AND_GOING in query:
                stream.batch("b", numbers.sample(rows, ROWS // 10))
            assert sorted(row[0] for row in stream.rows()) == [0, 1, 2]
