"""Read plans: the SQL of the rows of splits, in which malformed rows can be marked, skipped and counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Relation, Select, subquery

if TYPE_CHECKING:
    import duckdb

# The column that says why a row is malformed, NULL for a row that is not.
WRONG = internal("wrong")
# The column of a value: the text or bytes of one row, encoded in a format.
VALUE = internal("value")
# The table of all rows of a plan after `take`.
_STORED = internal("taken")


class RejectedRow(NamedTuple):
    """A row that DuckDB's CSV reader has rejected: its file, its line from 1, its text, and DuckDB's error."""

    path: str
    number: int
    text: str
    kind: str
    column: str
    message: str


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The SQL that reads some splits, and what to do about malformed rows.

    - `sql` has the requested columns, in order and with the declared types. It leaves out malformed rows if the table skips them;
      otherwise it fails at the first one.
    - `marked`, only if the table skips malformed rows, has all rows and the column WRONG: NULL, or why the row is malformed.
    - `rejects` are pairs of names (rejects table, scans table). A connection that runs the SQL has in these tables the rows that
      DuckDB's CSV reader cannot even parse; they are neither in `sql` nor in `marked`.
    - `keep`: whether to store the rows if they are needed twice. Text is slow to parse again; Parquet is read again.
    - `lost` counts rows that the source no longer has, if the table's options allow the job to continue without them.
    - `streams` are the relations that the plan has registered in the connection, by name. Another connection must register them,
      too, before it runs the plan.
    """

    sql: Select
    marked: Select | None = None
    rejects: Sequence[tuple[str, str]] = ()
    keep: bool = False
    lost: int = 0
    streams: Mapping[str, Any] = field(default_factory=dict)

    @property
    def relation(self) -> Relation:
        """The rows of `sql`."""
        return subquery(self.sql)

    @classmethod
    def of_marked(
        cls,
        marked: Select,
        rejects: Sequence[tuple[str, str]] = (),
        *,
        keep: bool = False,
        streams: Mapping[str, Any] | None = None,
    ) -> ReadPlan:
        """Return the plan that skips the rows of `marked` in which WRONG is not NULL."""
        sql = Select(f"SELECT * EXCLUDE ({WRONG}) FROM ({marked}) WHERE {WRONG} IS NULL")
        return cls(sql, marked, rejects, keep, streams=streams or {})

    def rejected(self, con: duckdb.DuckDBPyConnection) -> list[RejectedRow]:
        """Return the rows that DuckDB's CSV reader has rejected, in the order of files and lines."""
        # One malformed row may be rejected for several reasons, and several times when the SQL is run again.
        error_columns = ("error_type", "column_name", "error_message")
        items = ", ".join(f"arg_min(coalesce({name}::VARCHAR, ''), column_idx)" for name in error_columns)
        rejected_rows = []
        for rejects, scans in self.rejects:
            rows = con.execute(
                f"SELECT file_path, line, coalesce(any_value(csv_line), ''), {items}"
                f" FROM {rejects} JOIN {scans} USING (scan_id, file_id) GROUP BY file_path, line"
            ).fetchall()
            rejected_rows += [RejectedRow(*row) for row in rows]
        return sorted(rejected_rows)

    def take(self, con: duckdb.DuckDBPyConnection) -> None:
        """Run `marked`, if the plan has it, and store its rows in a temporary table of the connection.

        `well_formed`, `skipped` and `marked_rows` need it.
        """
        if self.marked is not None:
            # All columns: in a column that the query does not read, DuckDB would not notice a malformed value.
            con.execute(f"CREATE OR REPLACE TEMP TABLE {_STORED} AS {self.marked}")

    @property
    def well_formed(self) -> Relation:
        """The well-formed rows, after `take`."""
        if self.marked is None:
            return self.relation
        return Relation(f"(SELECT * EXCLUDE ({WRONG}) FROM {_STORED} WHERE {WRONG} IS NULL)")

    def skipped(self, con: duckdb.DuckDBPyConnection) -> int:
        """Return the number of malformed rows, both marked and rejected ones. Call it after `take`."""
        if self.marked is None:
            return 0
        [(count,)] = con.execute(f"SELECT count(*) FROM {_STORED} WHERE {WRONG} IS NOT NULL").fetchall()
        return int(count) + len(self.rejected(con))

    def marked_rows(self, con: duckdb.DuckDBPyConnection, item: str) -> list[tuple[Any, str]]:
        """Return (value of `item`, reason) of each malformed row, ordered by `item`, an SQL expression. Call it after `take`.

        The plan must have `marked`. Rows that DuckDB's CSV reader rejected are not included.
        """
        return con.execute(f"SELECT {item}, {WRONG} FROM {_STORED} WHERE {WRONG} IS NOT NULL ORDER BY 1").fetchall()

    def forget(self, con: duckdb.DuckDBPyConnection) -> None:
        """Drop the plan's tables and streams from the connection."""
        for table in (_STORED, *(name for pair in self.rejects for name in pair)):
            con.execute(f"DROP TABLE IF EXISTS {table}")
        for name in self.streams:
            con.unregister(name)
