"""The `mysql` sink: rows travel in long INSERT statements, and a transaction has the rows of a batch and its number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import duckdb

from sqlstream.catalog import Column, Table
from sqlstream.connectors.guarantees import Delivery
from sqlstream.connectors.interface import DriverSink, SinkContext
from sqlstream.connectors.mysql import client
from sqlstream.connectors.mysql.dialect import MySQL, dialect_of
from sqlstream.connectors.mysql.found import ServerTable, server_table
from sqlstream.connectors.mysql.statements import RowTooLong, insert_statements
from sqlstream.connectors.relational.check import check_columns, check_key, no_table
from sqlstream.connectors.relational.dialect import BATCHES, qualified
from sqlstream.connectors.relational.writer import DatabaseWriter, Transaction
from sqlstream.duck.sql import names
from sqlstream.errors import BindError, DataError, UsageError

if TYPE_CHECKING:
    from sqlstream.connectors.batch import Batch

# Temporary tables of a session, in which the rows of a batch and the keys of those that are gone wait for their table.
_ROWS, _KEYS = "_sqlstream_rows", "_sqlstream_keys"
# So many rows are made text at a time.
_CHUNK = 50_000
# What stands for the number of the last batch before the first.
_NONE = -1
_DUPLICATE = 1062


class MySQLTransaction(Transaction):
    """A transaction on a server."""

    def __init__(self, writer: MySQLWriter, con: Any, there: ServerTable):
        self._table, self._identity, self._batches = writer.table, writer.identity, batches(writer.table)
        self._dialect, self._longest = writer.dialect, writer.longest_statement
        self._con, self._there = con, there
        self._target = qualified(writer.table.options["table"])

    def last_batch(self) -> int | None:
        # `prepare` has made the row: a lock needs one, and what a lost connection is about to commit holds it.
        query = f"SELECT batch FROM {self._batches} WHERE sink = %s FOR UPDATE"
        [(number,)] = client.run(self._con, query, [self._identity]) or [(_NONE,)]
        return None if number == _NONE else int(number)

    def set_last_batch(self, number: int) -> None:
        insert = f"INSERT INTO {self._batches} (sink, batch) VALUES (%s, %s) ON DUPLICATE KEY UPDATE batch = %s"
        client.run(self._con, insert, [self._identity, number, number])

    def insert(self, batch: Batch) -> None:
        self._send(batch, batch.rows(), batch.columns, self._target)

    def replace(self, batch: Batch) -> None:
        key = [c for c in batch.columns if c.name in self._table.primary_key]
        columns, keys = [c.name for c in batch.columns], [c.name for c in key]
        if batch.is_changing:
            gone = stage(self._there, _KEYS)
            if self._send(batch, batch.deletes(), key, gone):
                client.run(self._con, self._dialect.delete(self._target, keys, gone))
        rows = stage(self._there, _ROWS)
        if not self._send(batch, batch.upserts(), batch.columns, rows):
            return
        if (update := self._dialect.update(self._target, columns, keys, rows)) is not None:
            client.run(self._con, update)
        client.run(self._con, self._dialect.insert_others(self._target, columns, keys, rows))

    def _send(self, batch: Batch, sql: str, columns: Sequence[Column], target: str) -> int:
        """Insert the rows of a query; return their number."""
        literals = self._dialect.literals(columns, sql, self._there.types)
        head, count = f"INSERT INTO {target} ({names(columns)}) VALUES ".encode(), 0
        try:
            with batch.connection() as duck:
                for rows in duck.sql(literals).to_arrow_reader(_CHUNK):
                    for statement in insert_statements(head, rows.column(0), self._longest):
                        self._con.query(statement)
                    count += rows.num_rows
        except (duckdb.InvalidInputException, RowTooLong) as error:
            reason = str(error).removeprefix("Invalid Input Error: ").split("\n")[0]
            raise DataError(f'rows of table "{self._table.name}" do not fit: {reason}', self._table.span) from error
        return count


class MySQLWriter(DatabaseWriter):
    """Writes the batches of a job into a table of a server; the connection is made anew where it is lost."""

    dialect: MySQL

    def __init__(self, table: Table, context: SinkContext):
        super().__init__(table, context)
        self._pymysql = client.load(table)
        self.passing_errors = (self._pymysql.MySQLError,)
        self.identity = context.identity()
        self.longest_statement = 0
        self._con: Any = None
        self._there: ServerTable | None = None

    def is_passing(self, error: Exception) -> bool:
        return client.is_passing(error)

    def reason(self, error: Exception) -> str:
        return client.reason(error)

    def prepare(self) -> None:
        name = self.table.options["table"]
        con = self._connected()
        try:
            self._there = self._prepared(con, name)
        except self._pymysql.MySQLError as error:
            self.close()
            if client.is_passing(error):
                raise
            message = f'table "{self.table.name}": {self.dialect.name} refuses to prepare table "{name}"'
            raise UsageError(f"{message}: {client.reason(error)}", self.table.span) from error

    def _prepared(self, con: Any, name: str) -> ServerTable:
        there = server_table(con, name)
        if there is None and self.creates:
            client.run(con, self.dialect.create(qualified(name), self.table.writable, self.table.primary_key))
            there = server_table(con, name)
        if there is None:
            raise no_table(self.table, name, self.dialect)
        check_columns(self.table, there.table, self.dialect)
        check_key(self.table, there.table, self.dialect)
        self._check_collations(there)
        self._check_transactions(there, name)
        own = batches(self.table)
        if (numbers := server_table(con, own.replace('"', ""))) is None:
            client.run(con, MAKE_BATCHES.format(table=own))
        else:
            self._check_transactions(numbers, own.replace('"', ""))
        insert = f"INSERT INTO {own} (sink, batch) VALUES (%s, %s) ON DUPLICATE KEY UPDATE sink = VALUES(sink)"
        client.run(con, insert, [self.identity, _NONE])
        return there

    def _check_transactions(self, there: ServerTable, name: str) -> None:
        if not there.has_transactions:
            said = f'table "{name}" of {self.dialect.name} is one of {there.engine}, which has no transactions'
            hint = f"ALTER TABLE {name} ENGINE = InnoDB."
            raise BindError(f'table "{self.table.name}": {said}', self.table.span, hint=hint)

    def _check_collations(self, there: ServerTable) -> None:
        """Raise BindError where the server takes different keys for the same."""
        for column in self.table.primary_key:
            collation = there.collations.get(column, "binary")
            if collation != "binary" and not collation.endswith("_bin"):
                said = f'column "{column}" of the PRIMARY KEY has the collation {collation}'
                raise BindError(
                    f'table "{self.table.name}": {said}, for which different texts may be the same key',
                    self.table.span,
                    hint=f"Give the column of {self.dialect.name} the collation {self.dialect.collation}.",
                )

    @contextmanager
    def transaction(self) -> Iterator[MySQLTransaction]:
        con = self._connected()
        assert self._there is not None
        try:
            if self.table.primary_key:
                self._make_stages(con, self._there)
            con.begin()
            yield MySQLTransaction(self, con, self._there)
            con.commit()
        except self._pymysql.MySQLError as error:
            self.close()
            if client.is_passing(error):
                raise
            raise self._refused(error) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the session, and with it what is open of a transaction."""
        if self._con is not None:
            with suppress(self._pymysql.MySQLError):
                self._con.close()
            self._con = None

    def _connected(self) -> Any:
        if self._con is None or not self._con.open:
            con = client.connect(self.table)
            [(version, longest)] = client.run(con, "SELECT VERSION(), @@max_allowed_packet")
            self.dialect, self.longest_statement = dialect_of(version), int(longest)
            self._con = con
        return self._con

    def _make_stages(self, con: Any, there: ServerTable) -> None:
        """Make the temporary tables, empty. What makes tables cannot be in a transaction everywhere."""
        key = [c for c in self.table.writable if c.name in self.table.primary_key]
        for name, columns in ((_ROWS, self.table.writable), (_KEYS, key)):
            table = stage(there, name)
            rows = f"SELECT {names(columns)} FROM {qualified(self.table.options['table'])} LIMIT 0"
            client.run(con, f"DROP TEMPORARY TABLE IF EXISTS {table}")
            client.run(con, f"CREATE TEMPORARY TABLE {table} (PRIMARY KEY ({names(key)})) {rows}")

    def _refused(self, error: Any) -> DataError:
        hint = None
        if error.args[0] == _DUPLICATE and not self.table.primary_key:
            hint = "Declare the PRIMARY KEY: then a row takes the place of the one that has its key."
        message = f'{self.dialect.name} refuses rows of table "{self.table.name}": {client.reason(error)}'
        return DataError(message, self.table.span, hint=hint)


# A name of a sink has no more than 255 characters but the eight of its number.
MAKE_BATCHES = (
    "CREATE TABLE IF NOT EXISTS {table} (sink varchar(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY,"
    " batch bigint NOT NULL,"
    " written_at timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)) ENGINE = InnoDB"
)


def stage(there: ServerTable, name: str) -> str:
    """Return a temporary table of the session: in the schema of the table that is written."""
    return qualified(f"{there.schema}.{name}")


def batches(table: Table) -> str:
    """Return the table of batch numbers: in the schema of the table that is written."""
    schema, dot, _ = table.options["table"].rpartition(".")
    return qualified(f"{schema}{dot}{BATCHES}")


class MySQLSink(DriverSink):
    """A table of a server."""

    delivery = Delivery.TRANSACTIONAL
    delivery_reason = "a transaction has the rows of a batch and its number"
    takes_changes = True
    replaces = True

    def open(self, context: SinkContext) -> MySQLWriter:
        return MySQLWriter(self.table, context)
