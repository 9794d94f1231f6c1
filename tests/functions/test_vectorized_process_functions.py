"""What it takes for a class to be a vectorized process function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pyarrow as pa
import pytest

from sqlstream import Context, ListState, SideOutput, ValueState, process, side_output, state, table
from sqlstream.catalog import Column
from sqlstream.errors import BindError
from sqlstream.functions.process.declare import declare_process
from sqlstream.functions.process.shapes import RowMismatch
from sqlstream.functions.process.vectors import TableShape


@dataclass
class Reading:
    sensor: int
    temperature: float


@process(vectorized="bucket", emits=Reading)
class Fine:
    last: ValueState[int] = state()

    def process(self, ctx: Context, rows: Annotated[pa.Table, Reading], state: pa.Table) -> Any:
        return rows, state


def test_columns_of_tables() -> None:
    fine = declare_process(Fine)
    assert (fine.vectorized, fine.ordered) == ("bucket", False)
    assert [(t.name, [c.name for c in t.columns or ()]) for t in fine.tables] == [("rows", ["sensor", "temperature"])]
    assert [(c.name, c.type) for c in fine.outputs] == [("sensor", "BIGINT"), ("temperature", "DOUBLE")]


def test_classes_that_are_not_vectorized() -> None:
    @process(vectorized=True)
    class Silent:
        def process(self, ctx: Context, rows: pa.Table) -> pa.Table: ...

    @process(vectorized=True, emits=object)
    class Unknown:
        def process(self, ctx: Context, rows: pa.Table) -> pa.Table: ...

    @process(emits=Reading)
    class ByRow:
        def process(self, ctx: Context, row: Reading) -> Any: ...

    @process(vectorized=True, emits=Reading)
    class Rows:
        def process(self, ctx: Context, rows: Reading) -> pa.Table: ...

    @process(vectorized="row", emits=Reading)  # type: ignore[call-overload]
    class Otherwise:
        def process(self, ctx: Context, rows: pa.Table) -> pa.Table: ...

    @process(vectorized=True, emits=Reading, ordered=True)
    class Ordered:
        def process(self, ctx: Context, rows: pa.Table) -> pa.Table: ...

    @process(vectorized="bucket", emits=Reading)
    class Timed:
        def process(self, ctx: Context, rows: pa.Table) -> pa.Table: ...
        def on_timer(self, ctx: Context) -> None: ...

    @process(vectorized="bucket", emits=Reading)
    class Several:
        @table
        def rides(self, ctx: Context, rows: pa.Table) -> pa.Table: ...
        @table
        def fares(self, ctx: Context, rows: pa.Table) -> pa.Table: ...

    @process(vectorized="bucket", emits=Reading)
    class Lists:
        seen: ListState[int] = state()

        def process(self, ctx: Context, rows: pa.Table, state: pa.Table) -> Any: ...

    @process(vectorized="bucket", emits=Reading)
    class Refreshed:
        last: ValueState[int] = state(ttl="1 h", refresh="read")

        def process(self, ctx: Context, rows: pa.Table, state: pa.Table) -> Any: ...

    @process(vectorized="bucket", emits=Reading)
    class Stateless:
        def process(self, ctx: Context, rows: pa.Table, state: pa.Table) -> Any: ...

    @process(vectorized=True, emits=Reading, changes=True)
    class Changing:
        def process(self, ctx: Context, rows: pa.Table) -> Any: ...

    @process(changelog_mode="append")  # type: ignore[call-overload]
    class Appending:
        def process(self, ctx: Context, row: Reading) -> Iterator[Reading]:
            yield row

    @process(changelog_mode="upsert")
    class Aside:
        late: SideOutput[int] = side_output()

        def process(self, ctx: Context, row: Reading) -> Iterator[Reading]:
            yield row

    wrong: dict[type, str] = {
        Changing: "is vectorized, and takes or emits changes",
        Appending: "has the changelog mode 'append'",
        Aside: "has side outputs, and emits changes",
        Silent: "does not say what it emits",
        Unknown: "what process function .* emits has no usable type",
        ByRow: "has emits, but is not vectorized",
        Rows: "Reading is no Arrow table",
        Otherwise: "is vectorized by 'row'",
        Ordered: "has ordered, but is not vectorized by bucket",
        Timed: "has timers, but is vectorized by bucket",
        Several: "takes several tables, but is vectorized by bucket",
        Lists: 'state "seen" of .*, is a list',
        Refreshed: 'state "last" of .*, has refresh="read"',
        Stateless: "has other parameters than it is called with",
    }
    for made, message in wrong.items():
        with pytest.raises(BindError, match=message):
            declare_process(made)


FITS = {"k": [1], "x": [2]}


@pytest.mark.parametrize(
    ("tables", "place", "message"),
    [
        ([FITS, FITS, {"k": [1]}], 2, 'emitted a table without the column "x"'),
        ([FITS, {**FITS, "y": [1]}], 1, 'emitted a table with an unexpected column "y"'),
        ([FITS, {"k": [1], "x": ["2"]}, {"k": [1], "x": ["two"]}], 2, "emitted a table whose column"),
        # Of tables with one schema, the one whose value is none.
        (
            [{"k": [1], "x": ["2"]}, {"k": [1], "x": ["3"]}, {"k": [1], "x": ["two"]}],
            2,
            "Failed to parse string: 'two'",
        ),
        ([FITS, [1]], 1, "which is no Arrow table"),
    ],
)
def test_the_table_that_does_not_fit_is_named(tables: list[Any], place: int, message: str) -> None:
    shape = TableShape((Column("k", "BIGINT"), Column("x", "BIGINT")))
    with pytest.raises(RowMismatch) as raised:
        shape.fitted([pa.table(one) if isinstance(one, dict) else one for one in tables], "emitted")
    assert raised.value.number == place
    assert message in raised.value.what


def test_two_columns_of_a_name_are_of_the_table_that_has_them() -> None:
    shape = TableShape((Column("k", "BIGINT"),))
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([1])], ["k", "k"])
    with pytest.raises(RowMismatch, match='with two columns "k"') as raised:
        shape.fitted([pa.table({"k": [1]}), twice], "emitted")
    assert raised.value.number == 1
