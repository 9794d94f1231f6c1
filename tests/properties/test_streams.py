"""The law of the whole system: what a stream emits, however it is cut and restarted, is DuckDB's answer over its rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.examples import examples
from tests.properties.model import Model, batch_answer, emitted, limits, play, stream_of
from tests.properties.strategies import RESTART, Batch, Query, Step, histories, near, queries, rows_of, splits

pytestmark = pytest.mark.slow

DELAYS = (0, 0, 4_000_000, 60_000_000)


delays = st.fixed_dictionaries({"a": st.sampled_from(DELAYS), "b": st.sampled_from(DELAYS)})
parallelisms = st.integers(1, 3)


@examples(60)
@given(queries, histories(), delays, parallelisms, st.booleans())
def test_a_stream_gives_the_batch_answer_over_all_rows_that_are_not_late(
    query: Query, history: list[Step], delays: dict[str, int], parallelism: int, small: bool
) -> None:
    model = Model(query, delays)
    with limits(small=small), stream_of(query, delays, parallelism) as stream:
        for step in history:
            play(stream, query, step)
            if isinstance(step, Batch):
                model.batch(step)
        if query.above is None:
            closed, _ = model.split()
            assert emitted(stream) == batch_answer(query, closed), "windows that the watermark has closed"
        stream.finish()
        assert emitted(stream) == batch_answer(query, model.accepted)
        late = dict(stream.query("SELECT operator, late_rows FROM sqlstream.operators"))
        assert late.pop("low") == model.late_rows()
        assert set(late.values()) <= {0}, "nothing is late above a window aggregate"


@examples(25)
@given(queries, st.data(), parallelisms)
def test_any_split_gives_one_result_when_the_watermark_covers_all_disorder(
    query: Query, data: st.DataObject, parallelism: int
) -> None:
    rows = [("a", row) for row in data.draw(rows_of(near))] + [("b", row) for row in data.draw(rows_of(near))]
    rows = data.draw(st.permutations(rows))
    covering = {"a": 90_000_000, "b": 90_000_000}
    with stream_of(query, covering, parallelism) as stream:
        for step in data.draw(splits(rows)):
            play(stream, query, step)
        stream.finish()
        expected = batch_answer(query, {t: [row for owner, row in rows if owner == t] for t in "ab"})
        assert emitted(stream) == expected


@examples(20)
@given(queries, histories(), delays, parallelisms)
def test_a_restart_after_every_batch_changes_nothing(
    query: Query, history: list[Step], delays: dict[str, int], parallelism: int
) -> None:
    batches = [step for step in history if isinstance(step, Batch)]
    seen = []
    for restarts in (False, True):
        with stream_of(query, delays, parallelism) as stream:
            shown = []
            for step in batches:
                play(stream, query, step)
                if restarts:
                    play(stream, query, RESTART)
                shown.append(emitted(stream))
            stream.finish()
            shown.append(emitted(stream))
            counts = stream.query("SELECT operator, late_rows, state_rows FROM sqlstream.operators ORDER BY ALL")
            versions = stream.query("SELECT version, watermark FROM sqlstream.snapshots ORDER BY version")
            sources = stream.query("SELECT source, watermark, null_rows FROM sqlstream.watermarks ORDER BY source")
            seen.append((shown, counts, versions, sources))
    assert seen[0] == seen[1]
