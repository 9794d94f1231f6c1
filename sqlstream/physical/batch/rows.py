"""Parts of a batch query: its relations, and the columns that say when the job read a row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Items, Relation, quote_name, quoted
from sqlstream.errors import SqlStreamError

# The batch in which the job read a row: the watermark before it (NULL: none; microseconds), its number, and its processing time
# (microseconds). Then the weight of the row, its position in the order of the batch's rows (0: not known), and whether the row
# has no event time although its table has a time attribute.
WATERMARK = Column(internal("mark"), "BIGINT")
BATCH = Column(internal("batch"), "BIGINT")
AT = Column(internal("read_at"), "BIGINT")
TIMES = Column(internal("times"), "BIGINT")
STANDS = Column(internal("stands"), "BIGINT")
UNTIMED = Column(internal("untimed"), "BOOLEAN")
# The columns that stay with a row up to the first stateful operator.
READ = (WATERMARK, BATCH, AT, TIMES, STANDS)


class CannotVerify(SqlStreamError):
    """The query of a job, or a part of it, has no batch answer, or the batch answer cannot be computed."""

    kind = "cannot be verified"


@dataclass(frozen=True, slots=True)
class StreamRules:
    """The rules of streams that a batch query applies. With all of them its answer is what the job should have written.

    `untimed`: rows without an event time are left out. `late`: late rows are left out. `expired`: a key that got no row for its
    time to live begins anew. `due`: results that the operators' watermarks have not reached yet are left out. `batches`: process
    functions get their rows in the batches of the job.
    """

    untimed: bool = False
    late: bool = False
    expired: bool = False
    due: bool = False
    batches: bool = False


@dataclass(frozen=True, slots=True)
class BatchRows:
    """A named relation of the query. With `is_read` its rows have the columns READ after `columns`."""

    name: str
    columns: tuple[str, ...]
    is_read: bool = False

    @property
    def listed(self) -> Items:
        """The columns, quoted, without READ."""
        return listed(self.columns)

    @property
    def hidden(self) -> str:
        """The columns READ as further select items, with a comma before each; empty if rows do not have them."""
        return "".join(f", {c.name}" for c in READ) if self.is_read else ""

    @property
    def sql(self) -> Relation:
        """The relation by its name."""
        return quoted(self.name)


def listed(columns: Iterable[str]) -> Items:
    """Return names as quoted identifiers."""
    return Items(", ".join(map(quote_name, columns)))
