"""Windows that late rows correct, and early results: changes add up to the answer over the rows that were not dropped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.examples import examples
from tests.properties.model import bag, limits
from tests.properties.strategies import Step
from tests.properties.test_windows import (
    CALLS,
    SECOND,
    Kind,
    Model,
    answer,
    delays,
    finish,
    histories,
    kinds,
    play,
    stream_of,
)

pytestmark = pytest.mark.slow

LATENESSES = (0, SECOND, 3 * SECOND, 5 * SECOND + 1000, 60 * SECOND)


@examples(25)
@given(
    kind=kinds,
    history=histories(),
    delay=delays,
    lateness=st.sampled_from(LATENESSES),
    parallelism=st.integers(1, 3),
    keyed=st.booleans(),
    made_below=st.booleans(),
    late_rows=st.booleans(),
    small=st.booleans(),
)
def test_changes_add_up_to_the_answer_over_the_rows_that_were_not_dropped(
    kind: Kind,
    history: list[Step],
    delay: int,
    lateness: int,
    parallelism: int,
    keyed: bool,
    made_below: bool,
    late_rows: bool,
    small: bool,
) -> None:
    keyed = kind.keyed if kind.name == "SESSION" else keyed
    key = "k, " if keyed else ""
    calls = CALLS
    if made_below and kind.name != "SESSION":
        # Who looks at a window's bounds gets rows that are in windows already.
        calls += ", MAX(x + epoch(window_end)) AS e"
    model = Model(kind, delay, lateness)
    select = f"SELECT {{}} {key}window_start, window_end, {calls} FROM {{}} GROUP BY {key}window_start, window_end"
    columns = f"{'k BIGINT, ' if keyed else ''}a TIMESTAMP, b TIMESTAMP, n BIGINT, total HUGEINT, d BIGINT, l BIGINT[], m STRING"
    columns += ", e DOUBLE" if calls != CALLS else ""
    kept_late = ", LATE_ROWS('dropped')" if late_rows else ""
    hint = f"/*+ ALLOWED_LATENESS('{lateness} us'){kept_late} */"
    with limits(small=small), stream_of(select.format(hint, kind.sql()), columns, delay, parallelism) as stream:
        play(stream, model, history)
        assert stream.verify()
        finish(stream, model)
        assert stream.verify()
        assert bag(stream.rows("out")) == answer(model.pairs, select.format("", "w"))
        numbers = "late_rows, missed_windows, state_rows, open_windows, next_end"
        found = stream.query(f"SELECT {numbers} FROM sqlstream.operators")
        late, missed = model.late, model.missed
        if calls != CALLS:
            # Rows are dropped one by one once they are in windows.
            late, missed = missed + sum(len(list(kind.windows(row[3] or 0))) for row in model.dropped), 0
        assert found[0][:2] == (late, missed)
        assert found[0][2:] == (late if late_rows else 0, 0, None)
        if late_rows and calls == CALLS:
            kept = stream.query(
                "SELECT k, x, s, epoch_us(ts), epoch_us(_event_time), _watermark FROM state.out.dropped"
            )
            assert bag([row[:4] for row in kept]) == bag(model.dropped)
            assert all(row[3] == row[4] and row[5] is not None for row in kept)


@examples(25)
@given(
    kind=kinds,
    history=histories(),
    delay=delays,
    lateness=st.sampled_from(LATENESSES),
    early=st.sampled_from(("'5 s'", "'2500 ms'", "'3 s', 'event'", "'1 s', 'event'", "1, 'rows'", "3, 'rows'")),
    parallelism=st.integers(1, 3),
    keyed=st.booleans(),
    small=st.booleans(),
)
def test_early_results_are_those_of_the_rows_that_have_come(
    kind: Kind,
    history: list[Step],
    delay: int,
    lateness: int,
    early: str,
    parallelism: int,
    keyed: bool,
    small: bool,
) -> None:
    keyed = kind.keyed if kind.name == "SESSION" else keyed
    key = "k, " if keyed else ""
    model = Model(kind, delay, lateness)
    select = f"SELECT {{}} {key}window_start, window_end, {CALLS} FROM {{}} GROUP BY {key}window_start, window_end"
    columns = f"{'k BIGINT, ' if keyed else ''}a TIMESTAMP, b TIMESTAMP, n BIGINT, total HUGEINT, d BIGINT, l BIGINT[], m STRING"
    hint = f"/*+ EARLY_FIRE({early}), ALLOWED_LATENESS('{lateness} us') */"
    with limits(small=small), stream_of(select.format(hint, kind.sql()), columns, delay, parallelism) as stream:
        for number, step in enumerate(history):
            play(stream, model, [step])
            if early in ("'5 s'", "'2500 ms'") and number % 2:
                stream.advance(5000)
                assert bag(stream.rows("out")) == answer(model.so_far(), select.format("", "w"))
            elif early.startswith("1, "):
                assert bag(stream.rows("out")) == answer(model.so_far(), select.format("", "w"))
            else:
                stream.advance(700)
        finish(stream, model)
        assert bag(stream.rows("out")) == answer(model.pairs, select.format("", "w"))
        numbers = "late_rows, missed_windows, state_rows, open_windows, next_end"
        found = stream.query(f"SELECT {numbers} FROM sqlstream.operators")
        assert found == [(model.late, model.missed, 0, 0, None)]
