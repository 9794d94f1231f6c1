"""`MIGRATE STATE .. AS SELECT ..`: checks the statements, and computes state tables with their SELECTs.

A SELECT reads the state of a version of a job: each operator is a schema with its state tables, whose columns have the names of
the query. It runs like a state query, and can also read the views of state, tables and functions of the project. Its rows are
written into files, from which the state of the new operators is built.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from sqlstream.duck.errors import of_duckdb, plain
from sqlstream.duck.sql import Relation, Select, quote_name, quote_text, subquery
from sqlstream.duck.types import INTEGERS, time_literal
from sqlstream.errors import BindError, QueryError, Span, SqlStreamError, missing
from sqlstream.jobs.upgrades.adaptations.registry import Adapter
from sqlstream.jobs.upgrades.changes import AdaptedOperator
from sqlstream.jobs.upgrades.forms import key_forms, value_form
from sqlstream.jobs.upgrades.migrated_lists import check_lists
from sqlstream.jobs.upgrades.older_settings import settings_of
from sqlstream.jobs.upgrades.settings_words import TTLS, changed_settings
from sqlstream.jobs.upgrades.state_columns import ROWS_OF, ShownColumn, ShownTable, state_tables
from sqlstream.jobs.upgrades.widening import is_wider
from sqlstream.physical.plan import StatefulStage
from sqlstream.queries.query import translate
from sqlstream.sql.nodes import MigrateState, Name
from sqlstream.storage.snapshot import JobHistory
from sqlstream.storage.views import behind
from sqlstream.storage.views import state_tables as stored_rows
from sqlstream.storage.zsets import KEYS
from sqlstream.units import EventTime, ProcessingTime
from sqlstream.warehouse.jobs import JobRecord, OperatorRecord, OperatorShape, TableRecord
from sqlstream.warehouse.paths import Warehouse

# Relations by schema and name.
Given: TypeAlias = Mapping[tuple[str, str], Relation]
# Runs a state query over a warehouse, with further relations.
Query: TypeAlias = Callable[[str, Given, Warehouse], duckdb.DuckDBPyRelation]
_Query: TypeAlias = Callable[[str, Given], duckdb.DuckDBPyRelation]
# Rows that are in memory at a time.
_ROWS = 100_000
_IMPLICIT = "SELECT can_cast_implicitly(NULL::{}, NULL::{})"
_AS_TEXT = {"INTERVAL", "BIT", "TIME WITH TIME ZONE"}


class Migrations:
    """The MIGRATE STATE statements of a file. `adaptations` checks them; their rows are computed when new state is written."""

    def __init__(self, statements: Sequence[MigrateState], query: Query):
        self._statements, self._query = statements, query
        self._folder: TemporaryDirectory[str] | None = None

    @property
    def operators(self) -> Mapping[str, Span]:
        """The names of the migrated operators, in lower case, with their positions in the text."""
        return {s.operator.text.lower(): s.operator.span for s in self._statements}

    @property
    def jobs(self) -> Sequence[Name]:
        """The names of the jobs whose state is migrated."""
        return [s.job for s in self._statements]

    def check_jobs(self, names: Sequence[str]) -> None:
        """Raise BindError for a statement about a job that is not among `names`."""
        for job in self.jobs:
            if job.text.lower() not in {name.lower() for name in names}:
                raise BindError(
                    f'"{job.text}" is no job that goes on here', job.span, hint=missing("job", job.text, names)
                )

    def concern(self, job: str) -> bool:
        """Tell whether a statement migrates state of a job."""
        return any(name.text.lower() == job.lower() for name in self.jobs)

    def adaptations(self, state: Warehouse, old: JobRecord, new: JobRecord) -> dict[str, Adapter]:
        """Return an adapter for each operator that the statements migrate, by its name in lower case.

        `state` is the warehouse, or the savepoint, with the old job. Raises errors that point into the statements.
        """
        statements = [s for s in self._statements if s.job.text.lower() in (old.job.lower(), new.job.lower())]
        newest = JobHistory(state, old.job.lower()).newest
        if not statements or newest is None:
            return {}
        old_state, time = given_state(state, old), newest.time

        def query(sql: str, relations: Given) -> duckdb.DuckDBPyRelation:
            return self._query(sql, relations, state)

        by_name: dict[str, list[Migration]] = {}
        for migration in check(statements, new, old_state, query, time):
            by_name.setdefault(migration.operator.name.lower(), []).append(migration)

        def rows(of: Sequence[Migration]) -> Callable[[], Mapping[str, Select]]:
            name = of[0].operator.name
            reached = newest.watermark_of(name)
            return lambda: carried_out(of, old_state, query, self._new_folder(), time, reached)[name]

        read = partial(query, relations=old_state)
        return {name: partial(_adapted, of, rows(of), read) for name, of in by_name.items()}

    def _new_folder(self) -> Path:
        """Return a new folder for rows, which is deleted with this object."""
        self._folder = self._folder or TemporaryDirectory(prefix="sqlstream-")
        return Path(mkdtemp(dir=self._folder.name))


def _adapted(
    migrations: Sequence[Migration],
    rows: Callable[[], Mapping[str, Select]],
    query: Callable[[str], duckdb.DuckDBPyRelation],
    was: OperatorRecord,
    new: OperatorRecord,
    stage: StatefulStage,
) -> AdaptedOperator:
    """Return the change of a migrated operator: see `Adapter`."""
    _check_complete(migrations, was)
    tables = state_tables(new)
    table_names = [m.table.name for m in migrations]
    table_names += [t.name for t in _following(tables, table_names)]
    note = f"MIGRATE STATE makes its state: {', '.join(table_names)}"

    def checked() -> Mapping[str, Select]:
        selects, statements = rows(), {m.table.name: m.statement for m in migrations}
        check_lists(
            {t.name: t for t in tables},
            selects,
            lambda name: _target(statements[name]),
            lambda: query(f"FROM {quote_name(was.name)}.{quote_name(KEYS)}"),
        )
        return selects

    return AdaptedOperator(new.name, was.name, (note,), _LazyTables(table_names, checked))


class _LazyTables(Mapping[str, Select]):
    """State tables by name; all of them are computed when the first one is read."""

    def __init__(self, names: Sequence[str], compute: Callable[[], Mapping[str, Select]]):
        self._names, self._compute = names, compute

    @cached_property
    def _selects(self) -> Mapping[str, Select]:
        return self._compute()

    def __getitem__(self, name: str) -> Select:
        if name not in self._names:
            raise KeyError(name)
        return self._selects[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True, slots=True)
class Migration:
    """A checked statement, the new operator and its table that it computes, and the names that the SELECT has for its columns."""

    statement: MigrateState
    operator: OperatorRecord
    table: ShownTable
    column_names: Mapping[str, str]


def given_state(warehouse: Warehouse, record: JobRecord) -> dict[tuple[str, str], Relation]:
    """Return the relations that migrations of a job can read: the state tables of its newest version, by operator and name."""
    history = JobHistory(warehouse, record.job.lower())
    relations = {}
    for operator in record.operators:
        rows = stored_rows(warehouse, record.job.lower(), operator, history.newest)
        for table in state_tables(operator):
            relations[operator.name, table.name] = subquery(table.selected(rows[table.name]))
    return relations


def check(
    statements: Sequence[MigrateState],
    new: JobRecord,
    relations: Given,
    query: _Query,
    time: ProcessingTime,
) -> list[Migration]:
    """Check statements for a job's new record, and return them as migrations. Raises errors that point into the statements.

    `relations` is the state that they can read. `time` is when keys were last seen, for statements that do not say that.
    """
    migrations: list[Migration] = []
    for statement in statements:
        operator = _operator(statement, new)
        table = _table(statement, state_tables(operator, time), operator)
        same = (m for m in migrations if (m.operator.name, m.table.name) == (operator.name, table.name))
        if next(same, None) is not None:
            raise BindError(f'state "{operator.name}.{table.name}" is migrated twice', _target(statement))
        relation = _relation(statement, relations, query)
        migrations.append(Migration(statement, operator, table, _matched(statement, table, relation)))
    return migrations


def _operator(statement: MigrateState, new: JobRecord) -> OperatorRecord:
    name = statement.operator.text
    operator = next((o for o in new.operators if o.name.lower() == name.lower()), None)
    if operator is None:
        names = [o.name for o in new.operators]
        hint = missing("operator", name, names) if names else "The job keeps no state."
        raise BindError(f'the query has no operator "{name}"', statement.operator.span, hint=hint)
    return operator


def _table(statement: MigrateState, tables: Sequence[ShownTable], operator: OperatorRecord) -> ShownTable:
    """Return the table that a statement computes; if it names none, the only table that does not follow from others."""
    if (name := statement.table) is not None:
        table = next((t for t in tables if t.name.lower() == name.text.lower()), None)
        if table is None:
            hint = missing("state table", name.text, [t.name for t in tables])
            raise BindError(f'operator "{operator.name}" has no state table "{name.text}"', name.span, hint=hint)
        return table
    chosen = [t for t in tables if not t.follows]
    if len(chosen) != 1:
        written = [f"MIGRATE STATE {statement.job.text}.{operator.name}.{t.name} AS .." for t in chosen]
        raise BindError(
            f'operator "{operator.name}" has {len(chosen)} state tables: {", ".join(t.name for t in chosen)}',
            statement.operator.span,
            hint=f"Write a statement for each: {'; '.join(written)}",
        )
    return chosen[0]


def _target(statement: MigrateState) -> Span:
    last = statement.table or statement.operator
    return statement.job.span.to(last.span)


def _relation(statement: MigrateState, relations: Given, query: _Query) -> duckdb.DuckDBPyRelation:
    """Return the rows of a statement's SELECT, not yet computed."""
    try:
        return query(statement.query.text, relations)
    except SqlStreamError as error:
        raise _with_span(error, statement) from error


def _with_span(error: SqlStreamError, statement: MigrateState) -> SqlStreamError:
    """Return an error of a query with its position in the MIGRATE STATE statement."""
    span = statement.query
    if error.span is not None:
        error.span = Span(span.source, span.start + error.span.start, span.start + error.span.end)
    else:
        error.span = _target(statement)
    return error


def _matched(statement: MigrateState, table: ShownTable, relation: duckdb.DuckDBPyRelation) -> dict[str, str]:
    """Return the column of the SELECT for each column of a table. Raises BindError if they do not fit."""
    selected = {name.lower(): (name, str(type)) for name, type in zip(relation.columns, relation.types, strict=True)}
    needed = f"It needs {', '.join(f'{c.name} {c.type}' for c in table.shown if c.filled is None)}."
    optional = [f"{c.name} {c.type}" for c in table.shown if c.filled is not None]
    if optional:
        needed += f" It can have {', '.join(optional)}."
    if len(selected) < len(relation.columns):
        raise BindError("two columns have the same name", statement.query, detail=needed)
    by_name = {c.name.lower(): c for c in table.shown}
    for lower, (name, _) in selected.items():
        if lower not in by_name:
            raise BindError(
                f'the state has no column "{name}"',
                _span_of(statement, name),
                detail=needed,
                hint=missing("column", name, [c.name for c in table.shown]),
            )
    for column in table.shown:
        if column.name.lower() not in selected and column.filled is None:
            raise BindError(f'column "{column.name}" is missing', _target(statement), detail=needed)
    with duckdb.connect() as con:
        for lower, (name, type) in selected.items():
            _check_type(con, statement, by_name[lower], name, type)
    return {by_name[lower].name: name for lower, (name, _) in selected.items()}


def _check_type(
    con: duckdb.DuckDBPyConnection, statement: MigrateState, column: ShownColumn, name: str, type: str
) -> None:
    if type == column.type or (type in INTEGERS and column.type.startswith("DECIMAL(38,0")):
        return
    [(fits,)] = con.execute(_IMPLICIT.format(type, column.type)).fetchall()
    if not fits or _rounds(type, column.type):
        raise BindError(
            f'column "{name}" is {type}, and the state has {column.type}',
            _span_of(statement, name),
            hint=f"Write CAST({quote_name(name) if not name.isidentifier() else name} AS {column.type}).",
        )


def _rounds(old: str, new: str) -> bool:
    """Tell whether an implicit cast of DuckDB to a type would round values that the type does not have.

    >>> _rounds("DECIMAL(10,5)", "DECIMAL(10,2)"), _rounds("BIGINT", "FLOAT"), _rounds("BIGINT", "DECIMAL(38,0)")
    (True, True, False)
    """
    return (new.startswith(("DECIMAL", "FLOAT")) or old.endswith("_NS")) and old != '"NULL"' and not is_wider(old, new)


def _span_of(statement: MigrateState, name: str) -> Span:
    """Return the first position of a name in a SELECT, or the whole SELECT if it is not there."""
    span = statement.query
    lowered, lower_name = span.text.lower(), name.lower()
    start = lowered.find(lower_name)
    while start >= 0:
        around = lowered[max(start - 1, 0) : start] + lowered[start + len(lower_name) : start + len(lower_name) + 1]
        if not any(c.isalnum() or c == "_" for c in around):
            return Span(span.source, span.start + start, span.start + start + len(lower_name))
        start = lowered.find(lower_name, start + 1)
    return span


def _check_complete(migrations: Sequence[Migration], was: OperatorRecord) -> None:
    """Raise BindError for a table of an operator without a statement that neither follows from others nor stays unchanged."""
    operator = migrations[0].operator
    table_names = {m.table.name for m in migrations}
    tables = state_tables(operator)
    following = {t.name for t in _following(tables, table_names)}
    for table in tables:
        if table.name in table_names or table.name in following:
            continue
        others = table.has_no_match and any(name.startswith(ROWS_OF) for name in table_names)
        if others or not _stays(table.record, was, operator):
            target = migrations[0].statement
            raise BindError(
                f'state table "{table.name}" of operator "{operator.name}" has no statement',
                _target(target),
                detail=f"It needs {', '.join(f'{c.name} {c.type}' for c in table.shown if c.filled is None)}.",
                hint=f"Write MIGRATE STATE {target.job.text}.{operator.name}.{table.name} AS SELECT ..",
            )


def _stays(table: TableRecord, was: OperatorRecord, new: OperatorRecord) -> bool:
    """Tell whether the new operator can use a state table of the old operator unchanged."""
    before, after = was.shape, new.shape
    if table not in was.tables or before is None or after is None or was.hash_columns != new.hash_columns:
        return False

    def items(shape: OperatorShape) -> object:
        held = (i for i in shape.items if table.name in i.columns)
        return key_forms(shape), sorted((i.kind, i.input, value_form(i), i.type, i.columns[table.name]) for i in held)

    if before.operator != after.operator or items(before) != items(after):
        return False
    changed = changed_settings(settings_of(before), settings_of(after))
    return all(one.field in (*TTLS, "bounds") for one in changed)


def carried_out(
    migrations: Sequence[Migration],
    relations: Given,
    query: _Query,
    folder: Path,
    time: ProcessingTime,
    watermark: EventTime | None = None,
) -> dict[str, dict[str, Select]]:
    """Compute the rows of migrations, write them into `folder`, and return the state tables by operator and name.

    Tables that have only keys get the keys of the other tables. Raises BindError for rows behind the operator's watermark, and
    other errors that point into the statements.
    """
    selects: dict[str, dict[str, Select]] = {}
    for number, migration in enumerate(migrations):
        path = folder / f"{number}.parquet"
        _write(migration, _relation(migration.statement, relations, query), path)
        rows = Relation(f"read_parquet({quote_text(str(path))})")
        _check_rows(migration, rows, watermark)
        tables = selects.setdefault(migration.operator.name, {})
        tables[migration.table.name] = migration.table.restored(rows, migration.column_names)
    for migration in migrations:
        _add_keys(migration.operator, selects[migration.operator.name], time)
    return selects


def _following(tables: Sequence[ShownTable], table_names: Collection[str]) -> list[ShownTable]:
    """Return the tables without a statement whose rows follow from tables with one."""
    return [
        t for t in tables if t.name not in table_names and any(one.name in table_names for one in t.followed(tables))
    ]


def _add_keys(operator: OperatorRecord, selects: dict[str, Select], time: ProcessingTime) -> None:
    """Add each table that has only keys and follows from migrated tables; other such tables stay unchanged."""
    tables = state_tables(operator, time)
    for table in _following(tables, selects):
        keys = [c for c in table.columns if c.filled is None]
        listed = ", ".join(quote_name(c.stored) for c in keys) or "true AS _all"
        rows = (selects.get(t.name, t.stored_rows) for t in table.followed(tables))
        every = Select(" UNION ".join(f"SELECT {listed} FROM ({one})" for one in rows))
        selects[table.name] = table.restored(subquery(every), {c.name: c.stored for c in keys})


def _write(migration: Migration, relation: duckdb.DuckDBPyRelation, path: Path) -> None:
    """Write the rows of a SELECT. Raises errors that point into the statement."""
    try:
        reader = _writable(relation).to_arrow_reader(_ROWS)
        with pq.ParquetWriter(path, reader.schema) as file:
            for batch in reader:
                file.write_batch(batch)
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        failure = of_duckdb(error) if isinstance(error, duckdb.Error | OSError) else None
        if failure is not None:
            raise _with_span(translate(failure, migration.statement.query.text), migration.statement) from error
        if isinstance(error, OSError):
            raise
        raise QueryError(str(error), _target(migration.statement)) from error


def _writable(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return rows in which values of types that Parquet does not have, or stores in another form, are texts.

    >>> _writable(duckdb.sql("SELECT INTERVAL 1 DAY AS i, '101'::BIT AS b, 1 AS n")).fetchall()
    [('1 day', '101', 1)]
    """
    if _AS_TEXT.isdisjoint(map(str, relation.types)):
        # Its errors say where in the query they are.
        return relation
    typed = zip(map(quote_name, relation.columns), map(str, relation.types), strict=True)
    return relation.project(", ".join(f"CAST({n} AS VARCHAR) AS {n}" if t in _AS_TEXT else n for n, t in typed))


def _check_rows(migration: Migration, rows: Relation, watermark: EventTime | None) -> None:
    """Raise BindError for rows that cannot be state.

    These have a value that its type does not hold, a time that is NULL or behind the watermark, or the key of another row.
    """
    table = migration.table
    types = {c.name: c.type for c in table.columns}
    values = {
        name: f"CAST({quote_name(selected)} AS {types[name]})" for name, selected in migration.column_names.items()
    }
    span = _target(migration.statement)
    with duckdb.connect() as con:
        for name, selected in migration.column_names.items():
            try:
                con.execute(f"SELECT max(hash({values[name]})) FROM {rows}")
            except duckdb.Error as error:
                raise BindError(
                    f'column "{selected}" has a value that {types[name]}, the type of the state, does not hold',
                    _span_of(migration.statement, selected),
                    detail=f"{plain(error)[:1].upper()}{plain(error)[1:]}.",
                ) from error
        time = next((c.name for c in table.columns if c.stored == table.record.time_column), None)
        if time is not None and con.execute(f"SELECT 1 FROM {rows} WHERE {values[time]} IS NULL LIMIT 1").fetchall():
            raise BindError(f'column "{time}" is NULL in some rows', span)
        if time is not None and watermark is not None:
            closed = time_literal(behind(watermark, migration.operator.delay), types[time])
            [(count,)] = con.execute(f"SELECT count(*) FROM {rows} WHERE {values[time]} <= {closed}").fetchall()
            if count:
                raise BindError(
                    f'column "{time}" is behind the watermark in {count} of the rows, which would be forgotten at once',
                    span,
                    hint=f"Leave them out with WHERE, or give them a time after {closed}.",
                )
        if not table.has_one_row_a_key:
            return
        keys = [c.name for c in table.columns if c.holds == "key" and c.name in values]
        listed = ", ".join(["count(*)", *(values[name] for name in keys)])
        several = f"SELECT {listed} FROM {rows} GROUP BY {', '.join(values[n] for n in keys) or '()'} HAVING count(*) > 1 LIMIT 1"
        for count, *key in con.execute(several).fetchall():
            named = ", ".join(f"{name} = {value}" for name, value in zip(keys, key, strict=True))
            raise BindError(f"there are {count} rows for {named or 'the only key'}, where the state has one", span)
