"""What nodes that keep state answer beside what every node does.

Each kind of operator answers here, in the class of its node, what EXPLAIN, planning and the records of jobs ask: none of these
asks which operator it has before it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from sqlstream.logical.plan.expressions import AggregateItem, Expression, Item, Schema
from sqlstream.logical.plan.growth import GROUP_IN_WINDOWS, Ends, Growth, all_end, forget_keys
from sqlstream.logical.plan.node import LateReads, Node
from sqlstream.units import NO_TIME, Duration


class StatefulNode(Node):
    """A node that keeps state from one batch to the next: an operator of the job."""

    # What the query calls it, empty where it gives it no name.
    name: str

    # -- in EXPLAIN

    @property
    @abstractmethod
    def title(self) -> str:
        """What the operator does, in a line."""

    @property
    @abstractmethod
    def key_text(self) -> str:
        """The key by which it keeps its rows apart, nothing where there is none."""

    @property
    def calls_text(self) -> str:
        """The calls that it computes, nothing where it has none."""
        return ""

    @property
    def states_text(self) -> str:
        """The states that a function of the user's declares, with their types and times to live."""
        return ""

    @property
    @abstractmethod
    def emission(self) -> str:
        """What it emits, and when."""

    @property
    def effect(self) -> str:
        """An operator is a step of its own."""
        return ""

    @property
    def without_key(self) -> str:
        """Where its rows are, if it has no key."""
        return "all rows are in one task"

    # -- in plans and records

    @property
    @abstractmethod
    def key_columns(self) -> tuple[str, ...]:
        """The columns of its state, or of its first input, that are its keys; the SQL of a key that is no column."""

    @property
    @abstractmethod
    def keys_by_name(self) -> tuple[tuple[str, tuple[Expression, ...]], ...]:
        """Its keys by their names, each with its expression over every input that has keys."""

    @property
    def key_items(self) -> tuple[Item, ...] | None:
        """The keys of its results, as computed columns; None where it emits rows of its input."""
        return None

    @property
    def call_items(self) -> tuple[tuple[AggregateItem, str], ...]:
        """The calls that it computes of its input, each with its manner."""
        return ()

    @property
    def keyed_inputs(self) -> tuple[int, ...]:
        """The places of the inputs that have keys."""
        return tuple(range(len(self.children)))

    @property
    @abstractmethod
    def key_ttl(self) -> Duration:
        """The time to live of all that it keeps of a key: 0 for ever, or where states or inputs have each their own."""

    @property
    @abstractmethod
    def leaving_time(self) -> str | None:
        """The column in whose order rows leave it, None where they leave in no order."""

    @property
    def computes_when_leaving(self) -> bool:
        """Whether its expressions are computed when a row leaves, and as long as it is kept."""
        return False

    @property
    def corrects(self) -> bool:
        """Whether it takes back results of windows that it has emitted."""
        return False

    @property
    def waits_for_later_rows(self) -> bool:
        """Whether rows leave it behind the watermark, because they wait for later ones."""
        return False

    @property
    def marks_late_rows(self) -> bool:
        """Whether its operator says of each row that it emits whether it is late."""
        return False

    @property
    def remembered_inputs(self) -> tuple[str, ...]:
        """The names of the inputs for which a time to live can be said."""
        return ()

    def named(self, name: str) -> Node:
        """Return the node under a name, if it has none."""
        return replace(self, name=name) if name and not self.name else self  # type: ignore[type-var]

    @property
    def emits_late(self) -> bool:
        """Whether it emits rows of times that its watermark has passed."""
        return False

    def growth(self, ends: Ends) -> Growth | None:
        """Return how its state grows as long as tables go on that do not end, None where something bounds it."""
        if self.state_growth is None or all_end(self, ends):
            return None
        return Growth(self.label, self.state_growth, f"{GROUP_IN_WINDOWS} Or let {forget_keys(self)}")

    # -- time to live

    @property
    @abstractmethod
    def can_forget(self) -> bool:
        """Whether it has keys that a time to live of the operator lets it forget."""

    def limited(self, ttl: Duration) -> Node:
        """Return the node with a time to live, if it forgets keys and does not say when itself."""
        return self

    @property
    @abstractmethod
    def depends_on_expiry(self) -> bool:
        """Whether its result depends on when keys were forgotten, so that no batch over all rows says what it is."""

    @property
    @abstractmethod
    def has_processing_timers(self) -> bool:
        """Whether it may ask to be called at a processing time."""


class WithTimeToLive(StatefulNode):
    """A node that keeps what it knows of a key until its time to live is over (0: for ever; None: as the session says)."""

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
    """A node that drops rows which come behind the watermark, and counts them. `late_reads` says that LATE_ROWS reads them."""

    late_reads: LateReads | None

    @property
    def drops_late_rows(self) -> bool:
        """Whether it drops rows as it is."""
        return True

    @property
    @abstractmethod
    def emits_its_rows(self) -> bool:
        """Whether what it emits are the rows of its input, or results of them, that may be late for what is above."""

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of its inputs, none where it has one that needs no name."""
        return ()

    def late_columns(self, place: int) -> Schema:
        """Return the columns of the late rows of an input, as they are shown."""
        return self.children[place].schema

    def names_in_table(self, place: int) -> tuple[tuple[str, str], ...]:
        """Return the columns of an input by the names that they have in their table; none where these are the same."""
        return ()

    def drops_for(self, below: Node) -> bool:
        """Tell whether it drops the late rows of an operator right below it, since it does its work."""
        return False

    @property
    def timed_part(self) -> str:
        """What of it goes by a time, as a sentence begins."""
        return "It is"


def columns_by_name(node: Node, names: tuple[str, ...]) -> tuple[tuple[str, tuple[Expression, ...]], ...]:
    """Return keys that are columns of a node's rows, by their names."""
    types = {f.name: f.type for f in node.schema}
    return tuple((name, (Expression.of_column(name, types[name]),)) for name in names)
