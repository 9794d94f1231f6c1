"""Nodes that join inputs: regular, interval and temporal joins."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal

from sqlstream.duck.internal_columns import ARRIVED
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.growth import Ends, Growth, all_end, table_name, ttl_hint
from sqlstream.logical.plan.joining import Joining, OwnNames, TimedJoin
from sqlstream.logical.plan.node import Keys, LateReads, Node, WindowColumns, WindowSize
from sqlstream.logical.plan.settings import JoinSettings, NodeValues
from sqlstream.logical.plan.values import optional_form
from sqlstream.logical.plan.windows import UNTIL_PASSED, WINDOW_TIME
from sqlstream.logical.plan.words import ON_CHANGE, ONCE_IN_ORDER, shifted
from sqlstream.units import NO_TIME, Duration, duration


@dataclass(frozen=True)
class Join(Joining):
    """A regular join: emits the rows that match, and updates the result with every further row.

    Keeps the rows of all inputs until they are retracted; an inner join of more than two inputs stores no intermediate result. A
    key of an input for which no row arrives for the input's time to live in `ttls` is forgotten (0: never; None: not set, the
    session's applies). `unread` is the text of a condition over both times that cannot be used as a bound; a warning quotes it.
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
    def title(self) -> str:
        return f"{self.kind} regular join"

    @property
    def _join(self) -> str:
        return "Join"

    @property
    def _matching_times(self) -> str:
        return ""

    @property
    def emission(self) -> str:
        return f"matches, {ON_CHANGE}" if self.kind != "inner" else "matches at once"

    @property
    def remembered_inputs(self) -> tuple[str, ...]:
        return self.aliases

    def limited(self, ttl: Duration) -> Node:
        return replace(self, ttls=tuple(ttl if own is None else own for own in self.ttls))

    @property
    def never_late(self) -> bool:
        return False

    @property
    def window_columns(self) -> WindowColumns | None:
        return None

    @property
    def window_size(self) -> WindowSize | None:
        return None

    @cached_property
    def changelog_origin(self) -> Node | None:
        """The changelog of an input for inner and semi joins, which are append-only over append-only inputs; else this node."""
        if self.kind in ("inner", "semi"):
            return next((node.changelog_origin for node in self.inputs if node.is_changelog), None)
        return self

    @property
    def forgets_keys(self) -> bool:
        return any(self.ttls)

    @cached_property
    def growing(self) -> tuple[int, ...]:
        """The indexes of the inputs whose stored rows grow without a bound."""
        pairs = enumerate(zip(self.inputs, self.ttls, strict=True))
        return tuple(index for index, (node, ttl) in pairs if not ttl and node.grows)

    @property
    def state_bound(self) -> str:
        return "; ".join(f"{self._called(index)}: {self._bound(index)}" for index in range(len(self.inputs)))

    def _bound(self, index: int) -> str:
        if ttl := self.ttls[index]:
            return f"time to live, a key is forgotten when no row has come for it for {duration(ttl)}"
        grows = index in self.growing
        return "nothing, it keeps every row" if grows else "the number of rows of the result below"

    def _called(self, index: int) -> str:
        return self.aliases[index] or f"input {index + 1}"

    @property
    def state_growth(self) -> str | None:
        return f"it keeps every row of {' and '.join(map(self._called, self.growing))}" if self.growing else None

    def growth(self, ends: Ends) -> Growth | None:
        """Return the growth by the rows of inputs that never end."""
        endless = [index for index in self.growing if not all_end(self.inputs[index], ends)]
        if not endless:
            return None
        names = [self.aliases[index] or table_name(self.inputs[index]) for index in endless]
        hint = (
            "Bound how far apart the times may be: AND b.ts BETWEEN a.ts - INTERVAL '1' HOUR AND a.ts. "
            f"Or let keys be forgotten: {ttl_hint(*names)}"
        )
        if self.unread is not None:
            why = "is not read as a bound: that compares both times, from both sides, with constants"
            hint = f"{self.unread} {why}. {hint}"
        return Growth(self.label, f"it keeps every row of {' and '.join(names)}", hint)


@dataclass(frozen=True)
class IntervalJoin(TimedJoin):
    """Emits the rows that match, if left time - `before` <= right time <= left time + `after`.

    Both lengths may be negative. Pairs are emitted at once, rows without a match when the watermark has passed all rows that
    could match. Keeps rows until then. A row behind the watermark is dropped and counted. A `windowed` join is a window join:
    its times are the ends of windows, and both lengths are 0.
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
        return f"{'window' if self.windowed else 'interval'} {super().label}"

    @property
    def joins_windows(self) -> bool:
        return self.windowed

    @property
    def title(self) -> str:
        return f"{self.kind} window join" if self.windowed else f"{self.kind} interval join: {self._interval}"

    @property
    def _join(self) -> str:
        return "WindowJoin" if self.windowed else "IntervalJoin"

    @property
    def _matching_times(self) -> str:
        return "" if self.windowed else f" {self._interval}"

    @property
    def _interval(self) -> str:
        first, second = self.times
        return f"{second} from {shifted(first, Duration(-self.before))} to {shifted(first, self.after)}"

    @property
    def emission(self) -> str:
        alone = "; rows without a match, when the watermark passes all that could match"
        return f"matches at once{alone if self.kind != 'inner' else ''}"

    @cached_property
    def time_attributes(self) -> tuple[str, ...]:
        times = (self._time_of(index) for index in self.always_there)
        return tuple(time for time in times if time is not None)

    def _time_of(self, index: int) -> str | None:
        if not self.windowed:
            return self.times[index]
        window = self.inputs[index].window_columns
        return window.time if window else None

    @property
    def clock_times(self) -> tuple[str, ...]:
        window = self.window_columns
        own = (*self.time_attributes, *(window.names if window is not None else ()))
        return own if self.goes_by_clock else ()

    @property
    def never_late(self) -> bool:
        return True

    @property
    def kept_back(self) -> Duration:
        """How far its watermark stays behind, in addition to the inputs' delay: a row at exactly the watermark is not late then.

        0 for window joins, in which the end of a window decides what is late, and over processing time, where no row is late.
        """
        return NO_TIME if self.windowed or self.goes_by_clock else UNTIL_PASSED

    @cached_property
    def delay_below(self) -> Duration:
        return Duration(self._delay_of_inputs + self.kept_back)

    @cached_property
    def _delay_of_inputs(self) -> Duration:
        below = max(self.delay_of(node) for node in self.inputs)
        if not self.windowed and any(n.makes_windows for below in self.inputs for n in walk(below)):
            # A window is emitted when the watermark reaches its end, which is WINDOW_TIME after its time.
            return Duration(below + WINDOW_TIME)
        return below

    @property
    def reach(self) -> Duration:
        """How far the watermark may be ahead of a row's time when the row leaves, in addition to the inputs' delay."""
        return max(NO_TIME, self.before, self.after)

    @property
    def delay(self) -> Duration:
        return Duration(self._delay_of_inputs + self.reach)

    @cached_property
    def window_columns(self) -> WindowColumns | None:
        if not self.windowed:
            return None
        return next((self.inputs[index].window_columns for index in self.always_there), None)

    @cached_property
    def window_size(self) -> WindowSize | None:
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


@dataclass(frozen=True)
class TemporalJoin(TimedJoin):
    """Emits each row of the first input, when the watermark passes its time, with the version of its key valid at that time.

    A row of the second input is a version of its key: valid from its time until the time of the next version. A version that does
    not meet the condition does not match, and no older one takes its place. `times` are the time columns. Keeps the rows of both
    inputs that the watermark has not passed, and of each key the newest version that it has passed. Rows and versions behind the
    watermark are dropped and counted. If the second input is a table of changes, a delete ends the version of its key.
    """

    node_kind: ClassVar[str] = "temporal_join"

    times: tuple[str, str] = ("", "")
    late_reads: LateReads | None = None
    own_names: OwnNames = field(default=(), compare=False, repr=False)

    @property
    def values(self) -> NodeValues:
        ties: Literal["columns", "arrival"] = "arrival" if self.by_arrival else "columns"
        return self._values_of(JoinSettings(self.kind, optional_form(self.condition), self.times, ties=ties))

    @property
    def by_arrival(self) -> bool:
        """Whether the version that arrived last is valid if a key has several at one time: versions then have ARRIVED."""
        return any(f.name == ARRIVED.name for f in self.inputs[1].schema)

    @property
    def label(self) -> str:
        return f"{'' if self.kind == 'inner' else f'{self.kind.upper()} '}JOIN FOR SYSTEM_TIME AS OF"

    @property
    def title(self) -> str:
        return f"{self.kind} temporal join with the version valid at {self.times[0]}"

    @property
    def _join(self) -> str:
        return "TemporalJoin"

    @property
    def _matching_times(self) -> str:
        return f" {self.times[1]} as of {self.times[0]}"

    @property
    def emission(self) -> str:
        return ONCE_IN_ORDER

    @property
    def leaving_time(self) -> str | None:
        return self.times[0]

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
    def never_late(self) -> bool:
        return True

    @cached_property
    def window_columns(self) -> WindowColumns | None:
        return self.inputs[0].window_columns

    @cached_property
    def window_size(self) -> WindowSize | None:
        return self.inputs[0].window_size

    @property
    def changelog_origin(self) -> Node | None:
        """None: later versions do not change a row that was emitted."""
        return None

    @cached_property
    def unique_keys(self) -> Keys:
        """The unique keys of the first input: a row has at most one version."""
        return self.inputs[0].unique_keys

    @property
    def state_bound(self) -> str:
        return "watermark, and the number of keys: rows wait until it has passed them, the newest version of each key is kept"

    @property
    def state_growth(self) -> str | None:
        return None
