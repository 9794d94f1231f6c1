"""What the views over state show: the open windows, at every version, and nothing beyond the bound."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.testing import Stream
from tests.properties.examples import examples
from tests.properties.model import Bag, Model, bag, batch_answer, limits, play, stream_of
from tests.properties.strategies import RESTART, Batch, Query, Step, histories, queries
from tests.properties.test_streams import delays, parallelisms

pytestmark = pytest.mark.slow


def shown(stream: Stream, query: Query, at: str = "") -> Bag:
    keys = [f"g{i}" for i in range(len(query.keys))]
    calls = [f"a{i}" for i in range(len(query.aggregates))]
    names = ", ".join([*keys, "window_start", "window_end", "window_time", "n", *calls])
    return bag(stream.query(f"SELECT {names} FROM state.out.low{at}"))


@examples(30)
@given(queries, histories(), delays, parallelisms, st.booleans())
def test_a_view_shows_the_open_windows_at_every_version(
    query: Query, history: list[Step], delays: dict[str, int], parallelism: int, small: bool
) -> None:
    query = replace(query, above=None)
    # The view is of the state: HAVING is applied to what leaves it.
    all_groups = replace(query, having=None)
    model = Model(query, delays)
    versions: dict[int, Bag] = {}
    with limits(small=small), stream_of(query, delays, parallelism) as stream:
        for step in history:
            play(stream, query, step)
            if isinstance(step, Batch):
                model.batch(step)
            now = shown(stream, query)
            assert now == batch_answer(all_groups, model.split()[1])
            if found := stream.query("SELECT max(version) FROM sqlstream.snapshots"):
                versions |= {found[0][0]: now} if found[0][0] is not None else {}
        stream.finish()
        assert not shown(stream, query), "the watermark has passed every window"
        play(stream, query, RESTART)
        assert not shown(stream, query)
        for version, then in versions.items():
            assert shown(stream, query, f" AT (VERSION => {version})") == then


@examples(20)
@given(queries, histories(), delays, parallelisms)
def test_state_never_outlives_the_watermark(
    query: Query, history: list[Step], delays: dict[str, int], parallelism: int
) -> None:
    model = Model(query, delays)
    with stream_of(query, delays, parallelism) as stream:
        for step in history:
            play(stream, query, step)
            if isinstance(step, Batch):
                model.batch(step)
            if model.watermark is not None:
                for (operator,) in stream.query("SELECT operator FROM sqlstream.operators"):
                    past = f"epoch_us(window_end) <= {model.watermark}"
                    assert stream.query(f'SELECT * FROM state.out."{operator}" WHERE {past}') == []
        stream.finish()
        assert {rows for (rows,) in stream.query("SELECT state_rows FROM sqlstream.operators")} <= {0}
