"""The nodes that bring the rows of several inputs together; all columns of the inputs have different names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from sqlstream.errors import Span

if TYPE_CHECKING:
    from sqlstream.catalog import Table
    from sqlstream.logical.plan.expressions import Expression, Field
    from sqlstream.logical.plan.nodes import Node

# Which rows there are beside the pairs that match, or instead of them.
Kind = Literal["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True, slots=True)
class Joining:
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
    def preserved(self) -> tuple[int, ...]:
        """The inputs whose rows are emitted without a match, or for having one, too."""
        return {"inner": (), "left": (0,), "right": (1,), "full": (0, 1), "semi": (0,), "anti": (0,)}[self.kind]

    @property
    def shown(self) -> tuple[int, ...]:
        """The inputs whose columns are in the result."""
        return (0,) if self.kind in ("semi", "anti") else tuple(range(len(self.inputs)))

    @property
    def padded(self) -> tuple[int, ...]:
        """The inputs whose columns are NULL in rows without a match."""
        return {"left": (1,), "right": (0,), "full": (0, 1)}.get(self.kind, ())


@dataclass(frozen=True, slots=True)
class Join(Joining):
    """Emits the rows that match among all rows so far, and changes that with every further one.

    Keeps the rows of all inputs, and nothing in between, also where there are more than two (of inner joins). A key of an input
    for which no row came for its `ttls` milliseconds is forgotten (0: never; None: as long as the session says). `unread` is the
    text of a condition that is about the times of rows, but bounds nothing as it is written.
    """

    ttls: tuple[int | None, ...] = ()
    unread: str | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class IntervalJoin(Joining):
    """Emits the rows that match, where the time of the right one lies from `before` before that of the left one to `after`.

    `times` are the columns; lengths are microseconds, and may be negative. Pairs are emitted at once, rows without a match when
    the watermark has passed all that could match them. Keeps rows as long as that. A row behind the watermark is dropped and
    counted. Where the times are the ends of windows, and equal, it is a join of windows.
    """

    times: tuple[str, str] = ("", "")
    before: int = 0
    after: int = 0
    windowed: bool = False

    @property
    def delay(self) -> int:
        """How far (microseconds) the watermark may be ahead of the times of rows when they leave."""
        return max(0, self.before, self.after)


@dataclass(frozen=True, slots=True)
class TemporalJoin(Joining):
    """Emits each row of the first input, when the watermark passes its time, with the version of its key valid at that time.

    A row of the second input is a version of its key: valid from its time until that of the next one. The keys are those of the
    versions; a version for which the condition is not true does not match, and no older one takes its place. `times` are the
    columns. Keeps the rows of both inputs that the watermark has not passed, and the newest version of each key that it has.
    A row behind the watermark, and a version, is dropped and counted. Where the second input is a table of changes, a delete
    ends its key's version.
    """

    times: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class LookupJoin:
    """Emits each row with the rows that a table outside has for its keys at that moment, for which the condition is true.

    A left join emits a row without any, too, with NULLs. `keys` are what to look for, each with the column of the table where it
    is looked for; `columns` are those of the table with their names in the result. Keeps no state.
    """

    input: Node
    table: Table
    kind: Kind
    keys: tuple[tuple[Expression, str], ...]
    columns: tuple[tuple[str, Field], ...]
    condition: Expression | None
    span: Span | None = field(default=None, compare=False, repr=False)
