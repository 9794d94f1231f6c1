"""LIMIT without ORDER BY: at every version the first rows that came, however they are cut into batches, with restarts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.testing import Stream
from tests.properties.examples import examples
from tests.properties.model import Bag, bag, limits
from tests.properties.strategies import RESTART, Restart

pytestmark = pytest.mark.slow

SCRIPT = """
CREATE TABLE a (k BIGINT, x BIGINT);
CREATE TABLE first (k BIGINT, x BIGINT);
CREATE TABLE of_some (x BIGINT);
CREATE TABLE counts (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED);
CREATE VIEW limited AS SELECT k, x FROM a LIMIT {rows} OFFSET {skipped};
EXECUTE STATEMENT SET BEGIN
INSERT INTO first SELECT * FROM limited;
INSERT INTO of_some SELECT x FROM a WHERE k = 1 LIMIT {rows};
INSERT INTO counts SELECT k, COUNT(*) FROM limited GROUP BY k;
END;
"""
steps = st.one_of(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), max_size=5), st.just(RESTART))


def rows_of(stream: Stream, table: str) -> Bag:
    return bag(stream.query(f"FROM {table}"))


@examples(30)
@given(st.lists(steps, max_size=8), st.integers(0, 6), st.integers(0, 3), st.integers(1, 3), st.booleans())
def test_the_first_rows_stay_however_they_are_cut(
    history: list[list[tuple[int, int]] | Restart], rows: int, skipped: int, parallelism: int, small: bool
) -> None:
    came: list[tuple[int, int]] = []
    script = SCRIPT.format(rows=rows, skipped=skipped)
    with limits(small=small), Stream(script, parallelism=parallelism) as stream:
        for step in history:
            if isinstance(step, Restart):
                stream.restart()
                continue
            if not step:
                continue
            stream.batch("a", step)
            came += step
            first = came[skipped : skipped + rows]
            assert rows_of(stream, "first") == bag(first)
            assert rows_of(stream, "of_some") == bag([(x,) for k, x in came if k == 1][:rows])
            counts = {k: sum(key == k for key, _ in first) for k in {k for k, _ in first}}
            assert rows_of(stream, "counts") == bag(counts.items())
        if not came:
            return
        assert stream.verify()
        # A number for each LIMIT, whatever came, and what the sums keep.
        [(kept,)] = stream.query("SELECT SUM(state_rows) FROM sqlstream.operators")
        assert kept <= 2 + len({k for k, _ in came})
