"""Joins: nodes that bring the rows of several inputs together; all columns of the inputs have different names."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal

from sqlstream.catalog import Table
from sqlstream.errors import Span
from sqlstream.logical.plan.aggregates import WindowAggregate
from sqlstream.logical.plan.expressions import Expression, Field, Schema
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.node import Keys, LateReads, Node, PassThrough, WindowColumns
from sqlstream.logical.plan.settings import JoinSettings, LookupSettings, NodeValues
from sqlstream.logical.plan.values import form, forms, optional_form
from sqlstream.logical.plan.windows import UNTIL_PASSED, WINDOW_TIME, CountWindows, SessionWindow, TimeWindows
from sqlstream.units import NO_TIME, Duration, duration

# Which rows there are beside the pairs that match, or instead of them.
Kind = Literal["inner", "left", "right", "full", "semi", "anti"]
# The columns of the inputs by the names that they have in their relations; none of an input that is a join itself.
OwnNames = tuple[tuple[tuple[str, str], ...], ...]
# More keys of a join are not looked at.
_MOST_KEYS = 16


@dataclass(frozen=True)
class Joining(Node):
    """What all joins share: rows match where their keys are equal, none of them NULL, and the condition is true.

    `keys` has those of each input, in the same order. Left, right and full joins emit the rows of that side (of both) that have
    no match with NULLs in the columns of the other; semi and anti joins emit rows of the first input alone, those with and
    those without a match. `aliases` are what people call the inputs.
    """

    inputs: tuple[Node, ...]
    name: str
    kind: Kind
    keys: tuple[tuple[Expression, ...], ...]
    condition: Expression | None
    aliases: tuple[str, ...]
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def shown(self) -> tuple[int, ...]:
        """The inputs whose columns are in the result."""
        return (0,) if self.kind in ("semi", "anti") else tuple(range(len(self.inputs)))

    @property
    def padded(self) -> tuple[int, ...]:
        """The inputs whose columns are NULL in rows without a match."""
        return {"left": (1,), "right": (0,), "full": (0, 1)}.get(self.kind, ())

    @property
    def always_there(self) -> tuple[int, ...]:
        """The inputs whose columns are in the result, and not NULL for want of a match."""
        return tuple(place for place in self.shown if place not in self.padded)

    @property
    def children(self) -> tuple[Node, ...]:
        return self.inputs

    def _over(self, children: tuple[Node, ...]) -> Node:
        return replace(self, inputs=children)

    @property
    def label(self) -> str:
        return "JOIN" if self.kind == "inner" else f"{self.kind.upper()} JOIN"

    @cached_property
    def expressions(self) -> tuple[Expression, ...]:
        condition = (self.condition,) if self.condition else ()
        return (*(k for keys in self.keys for k in keys), *condition)

    @cached_property
    def schema(self) -> Schema:
        return tuple(f for place in self.shown for f in self.inputs[place].schema)

    def _values_of(self, settings: JoinSettings) -> NodeValues:
        keys = tuple(forms(pair) for pair in zip(*self.keys, strict=True))
        return NodeValues(self.node_kind, name=self.name, keys=keys, settings=settings)

    @property
    def batch_times(self) -> tuple[str, ...]:
        return ()

    @property
    def leaves_at_once(self) -> bool:
        return False

    @cached_property
    def unique_keys(self) -> Keys:
        """Keys of all its inputs; one that has at most one row for a key adds nothing."""
        if len(self.shown) == 1:
            return self.inputs[0].unique_keys
        if self.kind == "full":
            # A row of either side may have NULL for its key, and be without a match: then both have NULLs in all keys.
            return ()
        made: Keys = (frozenset(),)
        for place, (below, equal) in enumerate(zip(self.inputs, self.keys, strict=True)):
            own = {k.column for k in equal}
            alone = any(names <= own for names in below.unique_keys)
            # The rows that have no match on the other side are told apart by their own key.
            if alone and place and self.kind in ("inner", "left"):
                continue
            made = tuple(names | more for names in made for more in below.unique_keys)[:_MOST_KEYS]
        return made


@dataclass(frozen=True)
class Join(Joining):
    """A regular join: emits the rows that match, and updates the result with every further row.

    Keeps the rows of all inputs, and nothing in between, also where there are more than two (of inner joins), until they are
    retracted. A key of an input for which no row came for as long as its `ttls` is forgotten (0: never; None: as long as the
    session says). `unread` is the text of a condition that is about the times of rows, but bounds nothing as it is written.
    """

    node_kind: ClassVar[str] = "join"

    ttls: tuple[Duration | None, ...] = ()
    unread: str | None = field(default=None, compare=False, repr=False)

    @property
    def values(self) -> NodeValues:
        return self._values_of(JoinSettings(self.kind, optional_form(self.condition)))

    @property
    def time_attributes(self) -> tuple[str, ...]:
        return ()

    @property
    def on_time(self) -> bool:
        return False

    @property
    def window_columns(self) -> WindowColumns | None:
        return None

    @property
    def window_size(self) -> Duration | None:
        return None

    @cached_property
    def changelog_origin(self) -> Node | None:
        """Pairs of append-only rows are append-only, too, and so is a row once it has a match."""
        if self.kind in ("inner", "semi"):
            return next((node.changelog_origin for node in self.inputs if node.is_changelog), None)
        return self

    @property
    def forgets_keys(self) -> bool:
        return any(self.ttls)

    @cached_property
    def growing(self) -> tuple[int, ...]:
        """The inputs of which it keeps more and more rows as long as they go on."""
        pairs = enumerate(zip(self.inputs, self.ttls, strict=True))
        return tuple(place for place, (node, ttl) in pairs if not ttl and node.grows)

    @property
    def state_bound(self) -> str:
        return "; ".join(f"{self._called(place)}: {self._bound(place)}" for place in range(len(self.inputs)))

    def _bound(self, place: int) -> str:
        if ttl := self.ttls[place]:
            return f"time to live, a key is forgotten when no row has come for it for {duration(ttl)}"
        grows = place in self.growing
        return "nothing, it keeps every row" if grows else "the number of rows of the result below"

    def _called(self, place: int) -> str:
        return self.aliases[place] or f"input {place + 1}"

    @property
    def state_growth(self) -> str | None:
        return f"it keeps every row of {' and '.join(map(self._called, self.growing))}" if self.growing else None


@dataclass(frozen=True)
class IntervalJoin(Joining):
    """Emits the rows that match, where the time of the right one lies from `before` before that of the left one to `after`.

    `times` are the columns; lengths may be negative. Pairs are emitted at once, rows without a match when the watermark
    has passed all that could match them. Keeps rows as long as that. A row behind the watermark is dropped and counted. Where
    the times are the ends of windows, and equal, it is a join of windows.
    """

    node_kind: ClassVar[str] = "interval_join"

    times: tuple[str, str] = ("", "")
    before: Duration = NO_TIME
    after: Duration = NO_TIME
    windowed: bool = False
    late_reads: LateReads | None = None
    own_names: OwnNames = field(default=(), compare=False, repr=False)

    @property
    def values(self) -> NodeValues:
        condition = optional_form(self.condition)
        if self.windowed:
            return self._values_of(JoinSettings(self.kind, condition, windowed=True))
        return self._values_of(JoinSettings(self.kind, condition, self.times, self.before, self.after))

    @property
    def label(self) -> str:
        kind = "JOIN" if self.kind == "inner" else f"{self.kind.upper()} JOIN"
        return f"{'window' if self.windowed else 'interval'} {kind}"

    @cached_property
    def time_attributes(self) -> tuple[str, ...]:
        times = (self._time_of(place) for place in self.always_there)
        return tuple(time for time in times if time is not None)

    def _time_of(self, place: int) -> str | None:
        if not self.windowed:
            return self.times[place]
        window = self.inputs[place].window_columns
        return window.time if window else None

    @property
    def on_time(self) -> bool:
        return True

    @property
    def kept_back(self) -> Duration:
        """How far its watermark is kept back for rows of the newest time: not for rows of windows, which are late by the ends of
        these, and not by the batch's own time, by which no row is late.
        """
        return NO_TIME if self.windowed or self.reads_by_clock else UNTIL_PASSED

    @cached_property
    def delay_below(self) -> Duration:
        return Duration(self._delay_of_inputs + self.kept_back)

    @cached_property
    def _delay_of_inputs(self) -> Duration:
        below = max(node.delay for node in self.inputs)
        if not self.windowed and any(map(_has_windows, self.inputs)):
            # A window is emitted when the watermark is at its end, which is that much beyond its time.
            return Duration(below + WINDOW_TIME)
        return below

    @property
    def reach(self) -> Duration:
        """How far the watermark may pass the times of rows until they leave."""
        return max(NO_TIME, self.before, self.after)

    @property
    def delay(self) -> Duration:
        return Duration(self._delay_of_inputs + self.reach)

    @cached_property
    def window_columns(self) -> WindowColumns | None:
        if not self.windowed:
            return None
        return next((self.inputs[place].window_columns for place in self.always_there), None)

    @cached_property
    def window_size(self) -> Duration | None:
        return self.inputs[0].window_size if self.windowed else None

    @cached_property
    def changelog_origin(self) -> Node | None:
        return next((node.changelog_origin for node in self.inputs if node.is_changelog), None)

    @property
    def state_bound(self) -> str:
        stay = duration(max(Duration(self.before + self.after), self.reach))
        until = "the end of its window" if self.windowed else f"{stay} behind its time"
        return f"watermark: a row is forgotten when the watermark is at {until}"

    @property
    def state_growth(self) -> str | None:
        return None


def _has_windows(node: Node) -> bool:
    return any(isinstance(n, TimeWindows | SessionWindow | CountWindows | WindowAggregate) for n in walk(node))


@dataclass(frozen=True)
class TemporalJoin(Joining):
    """Emits each row of the first input, when the watermark passes its time, with the version of its key valid at that time.

    A row of the second input is a version of its key: valid from its time until that of the next one. The keys are those of the
    versions; a version for which the condition is not true does not match, and no older one takes its place. `times` are the
    columns. Keeps the rows of both inputs that the watermark has not passed, and the newest version of each key that it has.
    A row behind the watermark, and a version, is dropped and counted. Where the second input is a table of changes, a delete
    ends its key's version.
    """

    node_kind: ClassVar[str] = "temporal_join"

    times: tuple[str, str] = ("", "")
    late_reads: LateReads | None = None
    own_names: OwnNames = field(default=(), compare=False, repr=False)

    @property
    def values(self) -> NodeValues:
        return self._values_of(JoinSettings(self.kind, optional_form(self.condition), self.times))

    @property
    def label(self) -> str:
        return f"{'' if self.kind == 'inner' else f'{self.kind.upper()} '}JOIN FOR SYSTEM_TIME AS OF"

    @property
    def time_attributes(self) -> tuple[str, ...]:
        return self.times[:1]

    @cached_property
    def delay_below(self) -> Duration:
        return Duration(self.delay + UNTIL_PASSED)

    @property
    def delay(self) -> Duration:
        return max(node.delay for node in self.inputs)

    @property
    def on_time(self) -> bool:
        return True

    @cached_property
    def window_columns(self) -> WindowColumns | None:
        return self.inputs[0].window_columns

    @cached_property
    def window_size(self) -> Duration | None:
        return self.inputs[0].window_size

    @property
    def changelog_origin(self) -> Node | None:
        """A row has the version of its time, whatever comes later."""
        return None

    @cached_property
    def unique_keys(self) -> Keys:
        """Those of the rows: each finds one version."""
        return self.inputs[0].unique_keys

    @property
    def state_bound(self) -> str:
        return "watermark, and the number of keys: rows wait until it has passed them, the newest version of each key is kept"

    @property
    def state_growth(self) -> str | None:
        return None


@dataclass(frozen=True)
class LookupJoin(PassThrough):
    """Emits each row with the rows that a lookup table has for its keys at that moment, for which the condition is true.

    A left join emits a row without any, too, with NULLs. `keys` are what to look for, each with the column of the table where it
    is looked for; `columns` are those of the table with their names in the result. Keeps no state.
    """

    node_kind: ClassVar[str] = "lookup_join"

    table: Table
    kind: Kind
    keys: tuple[tuple[Expression, str], ...]
    columns: tuple[tuple[str, Field], ...]
    condition: Expression | None
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def values(self) -> NodeValues:
        condition = optional_form(self.condition)
        return NodeValues(
            self.node_kind,
            keys=tuple((column, form(key)) for key, column in self.keys),
            settings=LookupSettings(self.kind, self.table.name, self.table.connector, condition),
        )

    @property
    def by_primary_key(self) -> bool:
        """Whether a row finds at most one row of the table: it has a PRIMARY KEY, all of which is looked for."""
        key = set(self.table.primary_key)
        return bool(key) and key <= {column for _, column in self.keys}

    @property
    def label(self) -> str:
        return f'lookup join with table "{self.table.name}"'

    @cached_property
    def expressions(self) -> tuple[Expression, ...]:
        return (*(key for key, _ in self.keys), *((self.condition,) if self.condition else ()))

    @cached_property
    def schema(self) -> Schema:
        return (*self.input.schema, *(f for _, f in self.columns))

    @cached_property
    def unique_keys(self) -> Keys:
        return self.input.unique_keys if self.by_primary_key else ()
