"""What the parts of a batch query are: relations by name, and the columns that say when a row was read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import quote_name
from sqlstream.errors import SqlStreamError
from sqlstream.units import END_OF_INPUT, Duration, EventTime

# The watermark before the batch in which a row was read (NULL: none), the number of the batch, and its time; all but the number
# in microseconds. Then how often the row is added, where it stands among the rows of its batch (0: that is not known), and
# whether it has no event time although its table has one.
MARK = Column(internal("mark"), "BIGINT")
BATCH = Column(internal("batch"), "BIGINT")
AT = Column(internal("read_at"), "BIGINT")
TIMES = Column(internal("times"), "BIGINT")
STANDS = Column(internal("stands"), "BIGINT")
UNTIMED = Column(internal("untimed"), "BOOLEAN")
# Those that stay with a row up to the first operator that keeps state.
READ = (MARK, BATCH, AT, TIMES, STANDS)


class CannotVerify(SqlStreamError):
    """A job, or a part of its query, has no batch answer to compare with."""

    kind = "cannot be verified"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How a batch query differs from the one over all rows: what a stream leaves out, and `watermark`, how far it has come.

    Rows without a time (`untimed`), late rows, and results that are not due are left out; `expired`: a key that was silent for
    its time to live begins anew. `batches`: process functions get their rows in the batches of the job. With all of them it is
    what the job should have written.
    """

    untimed: bool = False
    late: bool = False
    expired: bool = False
    due: bool = False
    batches: bool = False
    watermark: EventTime | None = None

    def is_over(self, micros: str, delay: Duration) -> str:
        """Return the condition that the watermark of an operator has reached a time."""
        if not self.due or self.watermark == END_OF_INPUT:
            return "true"
        return "false" if self.watermark is None else f"{micros} <= {self.watermark - delay}"


@dataclass(frozen=True, slots=True)
class BatchRows:
    """A relation of the query: its name, its columns, and whether its rows say when they were read (the columns READ)."""

    name: str
    columns: tuple[str, ...]
    is_read: bool = False

    @property
    def listed(self) -> str:
        return listed(self.columns)

    @property
    def hidden(self) -> str:
        """The columns that say when rows were read, behind others."""
        return "".join(f", {c.name}" for c in READ) if self.is_read else ""

    @property
    def sql(self) -> str:
        """What to write behind FROM."""
        return quote_name(self.name)


def listed(columns: Iterable[str]) -> str:
    return ", ".join(map(quote_name, columns))
