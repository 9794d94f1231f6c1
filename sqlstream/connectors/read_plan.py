"""How splits are read: the SQL of their rows, with what is known of those that are malformed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlstream.duck.internal_columns import internal

if TYPE_CHECKING:
    import duckdb

# Beside the columns of a row as it is read: why it is malformed, NULL where it is not.
WRONG = internal("wrong")
# A row that stands in a text, as a format writes it.
VALUE = internal("value")
# The rows of a plan that were taken.
_TAKEN = internal("taken")


class Rejected(NamedTuple):
    """A row of CSV that DuckDB has rejected, and what it says about it."""

    path: str
    number: int
    text: str
    kind: str
    column: str
    message: str


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How to read some splits.

    `sql` is a SELECT of the asked columns, in their order and with the declared types. Where malformed rows are to be
    skipped, `marked` has all rows, with a column WRONG that says why one is malformed, NULL where it is not; those that are not
    even that are in the tables `rejects` of the connection once `sql` or `marked` has been read. `keep` says that the rows
    are better kept than read a second time: text is parsed once, a second look at one column of Parquet costs little. `lost`
    rows are no longer there, and the table says that the others are to be read all the same. `streams` are the relations, by
    name, that are registered in the connection for this plan: another connection needs them, too.
    """

    sql: str
    marked: str | None = None
    rejects: Sequence[tuple[str, str]] = ()
    keep: bool = False
    lost: int = 0
    streams: Mapping[str, Any] = field(default_factory=dict)

    @property
    def relation(self) -> str:
        """The SELECT as it stands in a FROM clause."""
        return f"({self.sql})"

    @classmethod
    def of_marked(
        cls,
        marked: str,
        rejects: Sequence[tuple[str, str]] = (),
        *,
        keep: bool = False,
        streams: Mapping[str, Any] | None = None,
    ) -> ReadPlan:
        """Return the plan of rows of which some are marked."""
        sql = f"SELECT * EXCLUDE ({WRONG}) FROM ({marked}) WHERE {WRONG} IS NULL"
        return cls(sql, marked, rejects, keep, streams=streams or {})

    def rejected(self, con: duckdb.DuckDBPyConnection) -> list[Rejected]:
        """Return what the reader itself has rejected, file by file, in order."""
        # One malformed row may be rejected for several reasons, and several times when the SQL is run again.
        said = ("error_type", "column_name", "error_message")
        items = ", ".join(f"arg_min(coalesce({name}::VARCHAR, ''), column_idx)" for name in said)
        found = []
        for rejects, scans in self.rejects:
            rows = con.execute(
                f"SELECT file_path, line, coalesce(any_value(csv_line), ''), {items}"
                f" FROM {rejects} JOIN {scans} USING (scan_id, file_id) GROUP BY file_path, line"
            ).fetchall()
            found += [Rejected(*row) for row in rows]
        return sorted(found)

    def take(self, con: duckdb.DuckDBPyConnection) -> None:
        """Read all rows where some may be marked: `taken`, `skipped` and what is malformed are known then."""
        if self.marked is not None:
            # Whole: of a column that nobody asks for, the reader would not see that it is wrong.
            con.execute(f"CREATE OR REPLACE TEMP TABLE {_TAKEN} AS {self.marked}")

    @property
    def taken(self) -> str:
        """The rows that are not malformed as FROM-able SQL, once they were taken."""
        if self.marked is None:
            return self.relation
        return f"(SELECT * EXCLUDE ({WRONG}) FROM {_TAKEN} WHERE {WRONG} IS NULL)"

    def skipped(self, con: duckdb.DuckDBPyConnection) -> int:
        """Return how many malformed rows there were among those that were `taken`."""
        if self.marked is None:
            return 0
        [(count,)] = con.execute(f"SELECT count(*) FROM {_TAKEN} WHERE {WRONG} IS NOT NULL").fetchall()
        return int(count) + len(self.rejected(con))

    def marked_rows(self, con: duckdb.DuckDBPyConnection, item: str) -> list[tuple[Any, str]]:
        """Return a select item of the malformed rows among those that were `taken`, with the reason, in its order."""
        return con.execute(f"SELECT {item}, {WRONG} FROM {_TAKEN} WHERE {WRONG} IS NOT NULL ORDER BY 1").fetchall()

    def forget(self, con: duckdb.DuckDBPyConnection) -> None:
        """Drop what the reader has left on the connection."""
        for table in (_TAKEN, *(name for pair in self.rejects for name in pair)):
            con.execute(f"DROP TABLE IF EXISTS {table}")
        for name in self.streams:
            con.unregister(name)
