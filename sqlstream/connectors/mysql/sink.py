"""The `mysql` sink: rows are sent in long INSERT statements, and a transaction has the rows of a batch and its number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import duckdb

from sqlstream.catalog import Column, Table
from sqlstream.connectors.interface import SinkContext
from sqlstream.connectors.mysql import client
from sqlstream.connectors.mysql.dialect import MySQL, dialect_of
from sqlstream.connectors.mysql.introspection import ServerTable, server_table
from sqlstream.connectors.mysql.statements import RowTooLong, insert_statements
from sqlstream.connectors.relational.dialect import DatabaseTable, qualified
from sqlstream.connectors.relational.server import KEYS, ROWS, ServerTransaction, ServerWriter
from sqlstream.connectors.relational.writer import DatabaseSink
from sqlstream.duck.sql import Select, names
from sqlstream.errors import BindError, DataError

if TYPE_CHECKING:
    from sqlstream.connectors.batch import Batch

# Rows that are converted to literals at a time.
_CHUNK = 50_000
# The number of the error for a second row with the same key.
_DUPLICATE = 1062


class MySQLTransaction(ServerTransaction):
    """A transaction on a MySQL or MariaDB server. `there` is the table that it writes."""

    set_number = "INSERT INTO {table} (sink, batch) VALUES (%s, %s) ON DUPLICATE KEY UPDATE batch = VALUES(batch)"

    def __init__(self, writer: MySQLWriter, con: Any, there: ServerTable):
        super().__init__(writer, con)
        self._dialect, self._longest, self._there = writer.dialect, writer.longest_statement, there

    def insert(self, batch: Batch) -> None:
        self._send(batch, batch.rows(), batch.columns, self.target)

    def delete(self, batch: Batch, key: Sequence[Column]) -> None:
        gone = stage(self._there, KEYS)
        if self._send(batch, batch.deletes(), key, gone):
            client.run(self.con, self._dialect.delete(self.target, [c.name for c in key], gone))

    def upsert(self, batch: Batch, key: Sequence[Column]) -> None:
        columns, keys, rows = [c.name for c in batch.columns], [c.name for c in key], stage(self._there, ROWS)
        if not self._send(batch, batch.upserts(), batch.columns, rows):
            return
        if (update := self._dialect.update(self.target, columns, keys, rows)) is not None:
            client.run(self.con, update)
        client.run(self.con, self._dialect.insert_others(self.target, columns, keys, rows))

    def _send(self, batch: Batch, sql: Select, columns: Sequence[Column], target: str) -> int:
        """Insert the rows of a DuckDB query into a table; return their number. Raises DataError if one does not fit."""
        literals = self._dialect.literals(columns, sql, self._there.types)
        head, count = f"INSERT INTO {target} ({names(columns)}) VALUES ".encode(), 0
        try:
            with batch.connection() as duck:
                for rows in duck.sql(literals).to_arrow_reader(_CHUNK):
                    for statement in insert_statements(head, rows.column(0), self._longest):
                        self.con.query(statement)
                    count += rows.num_rows
        except (duckdb.InvalidInputException, RowTooLong) as error:
            reason = str(error).removeprefix("Invalid Input Error: ").split("\n")[0]
            raise DataError(f'rows of table "{self.table.name}" do not fit: {reason}', self.table.span) from error
        return count


class MySQLWriter(ServerWriter):
    """Writes the batches of a job into a table of a MySQL or MariaDB server.

    `longest_statement` is the server's limit in bytes, known once a session is open.
    """

    dialect: MySQL
    # A sink is the name of its job, at most 255 characters, a hyphen and eight digits.
    make_batches = (
        "CREATE TABLE IF NOT EXISTS {table} (sink varchar(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY,"
        " batch bigint NOT NULL,"
        " written_at timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)) ENGINE = InnoDB"
    )
    make_number = "INSERT INTO {table} (sink, batch) VALUES (%s, %s) ON DUPLICATE KEY UPDATE sink = VALUES(sink)"

    def __init__(self, table: Table, context: SinkContext):
        super().__init__(table, context)
        self.error = client.load(table).MySQLError
        self.passing_errors = (self.error,)
        self.longest_statement = 0
        self._tables: dict[str, ServerTable] = {}

    def connect(self) -> Any:
        """Open a session; set the dialect and the longest statement of its server."""
        con = client.connect(self.table)
        [(version, longest)] = client.run(con, "SELECT VERSION(), @@max_allowed_packet")
        self.dialect, self.longest_statement = dialect_of(version), int(longest)
        return con

    def is_open(self, con: Any) -> bool:
        return bool(con.open)

    def run(self, con: Any, statement: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        return client.run(con, statement, values)

    def describe(self, con: Any, name: str) -> DatabaseTable | None:
        """Return the columns and unique indexes of a table, None if it does not exist; store its engine and collations."""
        if (there := server_table(con, name)) is None:
            return None
        self._tables[name] = there
        return there.table

    def make(self, con: Any, statement: str) -> None:
        client.run(con, statement)

    def check_table(self, con: Any) -> None:
        """Create and check the table. Also raises BindError for unsafe key collations or an engine without transactions."""
        super().check_table(con)
        self._check_collations(self._there)
        self._check_transactions(self._there, self.table.options["table"])

    def check_numbers(self, con: Any, name: str) -> None:
        """Raise BindError if the existing table of batch numbers, `name`, is of an engine without transactions."""
        self._check_transactions(self._tables[name], name)

    @contextmanager
    def begun(self, con: Any) -> Iterator[MySQLTransaction]:
        """Create the staging tables of a table with a PRIMARY KEY, then begin a transaction, and commit it at the end."""
        if self.table.primary_key:
            self._make_stages(con, self._there)
        con.begin()
        yield MySQLTransaction(self, con, self._there)
        con.commit()

    def is_passing(self, error: Exception) -> bool:
        return client.is_passing(error)

    def is_duplicate(self, error: Exception) -> bool:
        return error.args[:1] == (_DUPLICATE,)

    def reason(self, error: Exception) -> str:
        return client.reason(error)

    @property
    def _there(self) -> ServerTable:
        return self._tables[self.table.options["table"]]

    def _check_transactions(self, there: ServerTable, name: str) -> None:
        if not there.has_transactions:
            problem = f'table "{name}" of {self.dialect.name} is one of {there.engine}, which has no transactions'
            hint = f"ALTER TABLE {name} ENGINE = InnoDB."
            raise BindError(f'table "{self.table.name}": {problem}', self.table.span, hint=hint)

    def _check_collations(self, there: ServerTable) -> None:
        """Raise BindError if the server may take different keys for equal ones."""
        for column in self.table.primary_key:
            collation = there.collations.get(column, "binary")
            if collation != "binary" and not collation.endswith("_bin"):
                problem = f'column "{column}" of the PRIMARY KEY has the collation {collation}'
                raise BindError(
                    f'table "{self.table.name}": {problem}, for which different texts may be the same key',
                    self.table.span,
                    hint=f"Give the column of {self.dialect.name} the collation {self.dialect.collation}.",
                )

    def _make_stages(self, con: Any, there: ServerTable) -> None:
        """Create empty staging tables, before the transaction: not all servers can create tables in one."""
        key = [c for c in self.table.writable if c.name in self.table.primary_key]
        for name, columns in ((ROWS, self.table.writable), (KEYS, key)):
            table = stage(there, name)
            rows = f"SELECT {names(columns)} FROM {qualified(self.table.options['table'])} LIMIT 0"
            client.run(con, f"DROP TEMPORARY TABLE IF EXISTS {table}")
            client.run(con, f"CREATE TEMPORARY TABLE {table} (PRIMARY KEY ({names(key)})) {rows}")


def stage(there: ServerTable, name: str) -> str:
    """Return the quoted name of a staging table, in the schema of the table that is written."""
    return qualified(f"{there.schema}.{name}")


class MySQLSink(DatabaseSink):
    """A table of a MySQL or MariaDB server that a job writes."""

    writer_type = MySQLWriter
