"""The interface of stateful nodes, for EXPLAIN, planning and the records of jobs: these do not ask for the kind of a node."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import cached_property

from sqlstream.logical.plan.expressions import AggregateItem, Expression, Item, Schema, visible
from sqlstream.logical.plan.growth import GROUP_IN_WINDOWS, Ends, Growth, all_end, forget_keys
from sqlstream.logical.plan.node import LateReads, Node
from sqlstream.logical.plan.state_settings import Ties
from sqlstream.units import NO_TIME, Duration


class StatefulNode(Node):
    """A node that keeps state from one batch to the next: an operator of the job."""

    # The name in the query, empty if it has none.
    name: str

    # -- the order of arrival

    @property
    def passes_rows_on(self) -> bool:
        """Whether its rows are rows of its input, with further columns."""
        return False

    def passing_arrival(self, below: Node) -> Node:
        """Return this node over `below`, its input with ARRIVED; its rows then have ARRIVED. Only if it `passes_rows_on`."""
        return self.with_children((below,))

    @property
    def has_ties(self) -> bool:
        """Whether rows of a key may be equal in its ORDER BY (ties), and its result depends on which of them comes first."""
        return False

    @property
    def is_by_arrival(self) -> bool:
        """Whether the order of arrival is the last item of its ORDER BY."""
        return False

    @property
    def ties(self) -> Ties | None:
        """The rule for ties: the order of arrival, or the values of all columns; None if its result does not depend on ties."""
        return "arrival" if self.is_by_arrival else "columns" if self.has_ties else None

    # -- batches

    @property
    def time_of_timers(self) -> str | None:
        """The event-time column of rows if timers of that time may fire before or after rows of the same batch; else None.

        Then results may depend on how rows are divided into batches.
        """
        return None

    # -- in EXPLAIN

    @property
    @abstractmethod
    def title(self) -> str:
        """What the operator does, as the first line of its step in EXPLAIN."""

    @property
    @abstractmethod
    def key_text(self) -> str:
        """The key of its state, for EXPLAIN; empty without a key."""

    @property
    def calls_text(self) -> str:
        """The calls that it computes, for EXPLAIN; empty without calls."""
        return ""

    @property
    def states_text(self) -> str:
        """The states of a user's function, with their types and times to live, for EXPLAIN; empty without states."""
        return ""

    @property
    @abstractmethod
    def emission(self) -> str:
        """What it emits and when, for EXPLAIN."""

    @property
    def effect(self) -> str:
        """Empty: an operator is a step of its own in EXPLAIN."""
        return ""

    @property
    def without_key(self) -> str:
        """How rows are distributed if it has no key, for EXPLAIN."""
        return "all rows are in one task"

    # -- in plans and records

    @property
    @abstractmethod
    def key_columns(self) -> tuple[str, ...]:
        """The key columns of its state or of its first input; for a key that is not a column, its SQL."""

    @property
    @abstractmethod
    def keys_by_name(self) -> tuple[tuple[str, tuple[Expression, ...]], ...]:
        """The keys: each a name, and one expression for each of the `keyed_inputs`."""

    @property
    def key_items(self) -> tuple[Item, ...] | None:
        """The key columns of its result, each with its expression; None if it emits input rows."""
        return None

    @property
    def call_items(self) -> tuple[tuple[AggregateItem, str], ...]:
        """The calls that it computes over its input, each with the text of its frame; empty text: no frame."""
        return ()

    @property
    def keyed_inputs(self) -> tuple[int, ...]:
        """The indexes (from 0) of the inputs that have keys."""
        return tuple(range(len(self.children)))

    @property
    @abstractmethod
    def key_ttl(self) -> Duration:
        """The time to live of a key's state. 0: for ever, or each state or input has a time to live of its own."""

    @property
    @abstractmethod
    def leaving_time(self) -> str | None:
        """The time column in whose order rows leave it, None if they leave in no order."""

    @property
    def by_clock(self) -> bool:
        """Whether it orders rows by processing time."""
        return False

    @property
    def computes_when_leaving(self) -> bool:
        """Whether it computes its expressions when a row leaves, which may be batches after its arrival."""
        return False

    @property
    def corrects(self) -> bool:
        """Whether it corrects results of windows that it has emitted."""
        return False

    @property
    def waits_for_later_rows(self) -> bool:
        """Whether rows leave it after the watermark has passed them, because they wait for later rows."""
        return False

    @property
    def marks_late_rows(self) -> bool:
        """Whether its operator emits a column that marks late rows."""
        return False

    @property
    def remembered_inputs(self) -> tuple[str, ...]:
        """The names of the inputs that may each have their own time to live."""
        return ()

    def named(self, name: str) -> Node:
        """Return the node under a name, unless it has one already."""
        return replace(self, name=name) if name and not self.name else self  # type: ignore[type-var]

    def without_times(self) -> Node:
        """Return this node without time attributes, for a plan in which no operator above uses them; else the same object."""
        return self

    @property
    def emits_late(self) -> bool:
        """Whether it may emit rows whose event time its watermark has passed."""
        return False

    def growth(self, ends: Ends) -> Growth | None:
        """Return how its state grows without a bound, None if something bounds it or all tables below end.

        `ends` tells whether a table's input comes to an end.
        """
        if self.state_growth is None or all_end(self, ends):
            return None
        return Growth(self.label, self.state_growth, f"{GROUP_IN_WINDOWS} Or let {forget_keys(self)}")

    @property
    def reads_time(self) -> bool:
        """Whether its watermark decides what it emits or keeps. If not, it waits for the watermark of no input."""
        return False

    @cached_property
    def goes_by_clock(self) -> bool:
        """Whether it works by processing time: all its `times_read` are `clock_times` of its inputs."""
        times = [time in self.children[index].clock_times for index, time in self.times_read]
        return bool(times) and all(times)

    @property
    def inputs_never_late(self) -> bool:
        """Whether no row can be late: it works by processing time, and no input retracts rows, which would have past times."""
        return self.goes_by_clock and not any(child.is_changelog for child in self.children)

    @property
    def waits_for_clock(self) -> bool:
        """Whether its watermark is processing time although the watermark of a table below is not."""
        return self.goes_by_clock and not self.reads_by_clock

    @cached_property
    def delay_below(self) -> Duration:
        return max((self.delay_of(child) for child in self.children), default=NO_TIME)

    def delay_of(self, child: Node) -> Duration:
        """Return how far its watermark may be ahead of the time of a child's row when that row arrives."""
        return child.clock_delay if self.waits_for_clock else child.delay

    @cached_property
    def clock_delay(self) -> Duration:
        """As of its inputs if rows leave at once; else its own `delay` if it works by processing time, else 0."""
        if self.leaves_at_once:
            return max((child.clock_delay for child in self.children), default=NO_TIME)
        return self.delay if self.goes_by_clock else NO_TIME

    @property
    def clock_times(self) -> tuple[str, ...]:
        """By default its time attributes, if it works by processing time."""
        return self.time_attributes if self.goes_by_clock else ()

    # -- time to live

    @property
    @abstractmethod
    def can_forget(self) -> bool:
        """Whether it has keys that a time to live of the whole operator can make it forget."""

    def limited(self, ttl: Duration) -> Node:
        """Return the node with a time to live (0: for ever), if it can have one and none is set yet."""
        return self

    @property
    @abstractmethod
    def depends_on_expiry(self) -> bool:
        """Whether its result depends on when keys expired, so that a batch query cannot compute it."""

    @property
    @abstractmethod
    def has_processing_timers(self) -> bool:
        """Whether it may set processing-time timers."""


class WithTimeToLive(StatefulNode):
    """A node whose keys expire: `ttl` is the time to live of a key (0: for ever; None: not set, the session's applies)."""

    ttl: Duration | None

    @property
    def can_forget(self) -> bool:
        return True

    def limited(self, ttl: Duration) -> Node:
        return replace(self, ttl=ttl) if self.can_forget and self.ttl is None else self  # type: ignore[type-var]

    @property
    def key_ttl(self) -> Duration:
        return self.ttl or NO_TIME

    @property
    def forgets_keys(self) -> bool:
        return bool(self.ttl)

    @property
    def depends_on_expiry(self) -> bool:
        return bool(self.ttl)


class DropsLateRows(StatefulNode):
    """A node that drops rows behind the watermark, and counts them. With `late_reads` a query reads them, too."""

    late_reads: LateReads | None

    @property
    def drops_late_rows(self) -> bool:
        """Whether it drops late rows, with its present settings."""
        return True

    @property
    def reads_time(self) -> bool:
        return True

    @property
    @abstractmethod
    def emits_its_rows(self) -> bool:
        """Whether it emits its input rows, or results per window, so that LATE_ROWS looks for late rows below it, too."""

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of its inputs, by which LATE_ROWS names one; empty with a single input."""
        return ()

    def late_columns(self, index: int) -> Schema:
        """Return the columns of the late rows of the input at `index`, without event time and watermark."""
        return visible(self.children[index].schema)

    def names_in_table(self, index: int) -> tuple[tuple[str, str], ...]:
        """Return pairs of a column's name in its own relation and in the input at `index`; empty if all names are the same."""
        return ()

    def drops_for(self, below: Node) -> bool:
        """Return whether it does the work of the node right below, and drops that node's late rows."""
        return False

    @property
    def timed_part(self) -> str:
        """The start of a sentence about the time that it depends on, such as "Its windows are"."""
        return "It is"


def columns_by_name(node: Node, names: tuple[str, ...]) -> tuple[tuple[str, tuple[Expression, ...]], ...]:
    """Return `keys_by_name` of keys that are columns of a node."""
    types = {f.name: f.type for f in node.schema}
    return tuple((name, (Expression.of_column(name, types[name]),)) for name in names)
