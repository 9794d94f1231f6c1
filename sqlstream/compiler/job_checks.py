"""Checks of jobs: tables that they read and write, before planning; limits on the state of their operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlstream.catalog import Catalog, Table
from sqlstream.connectors.formats.malformed import COLUMNS as MALFORMED
from sqlstream.connectors.formats.malformed import errors_to
from sqlstream.connectors.registry import sink_of
from sqlstream.connectors.tables import check_lookup, check_sink, check_source, is_bounded
from sqlstream.errors import BindError, UnsupportedError, missing
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.lookups import LookupJoin
from sqlstream.logical.plan.tables import ResultSink, Scan
from sqlstream.options import MAX_ROWS, Options
from sqlstream.sql.nodes import Insert, Select, SetOption, Statement, StatementSet


def check_limits(statements: Iterable[Statement], fixed: Iterable[str], operators: Mapping[str, str]) -> None:
    """Raise BindError if an option limits the state of an operator that no job of a script has.

    The options are the SET statements among `statements`, and `fixed`, the keys of options that SET cannot change.
    `operators` maps the name of each operator to the name of its job.
    """
    operator_names = {name.lower() for name in operators}
    keys = [(one.key.text, one.key.span) for one in statements if isinstance(one, SetOption)]
    for key, span in (*keys, *((key, None) for key in fixed)):
        name = key.lower().removeprefix(f"{MAX_ROWS}.")
        if name != key.lower() and name not in operator_names:
            jobs = sorted(set(operators.values()))
            what = f'job "{jobs[0]}" has' if len(jobs) == 1 else "the jobs of the script have"
            message = (
                f'{what} no operator "{name}"' if span is not None else f'--set {key}: {what} no operator "{name}"'
            )
            raise BindError(message, span, hint=missing("operator", name, operators))


def check_tables(statement: Insert | StatementSet | Select, logical: tuple[ResultSink, ...], catalog: Catalog) -> None:
    """Raise a SqlStreamError unless a job can read its source tables and write its sink tables.

    `logical` has a plan per INSERT of the statement, in their order.
    """
    written = {sink.table.name.lower() for sink in logical}
    for node in (n for sink in logical for n in walk(sink)):
        if isinstance(node, Scan):
            check_source(node.table, node.span)
            _check_errors(node.table, catalog)
            if node.table.connector is None and node.table.name.lower() in written:
                hint = "Write into another table."
                raise UnsupportedError("a job that reads the table it writes", node.span, hint=hint)
        if isinstance(node, LookupJoin):
            check_lookup(node.table, node.span)
    inserts = statement.inserts if isinstance(statement, StatementSet) else (statement,)
    sinks: dict[str, Table] = {}
    for insert, sink in zip(inserts, logical, strict=True):
        if isinstance(insert, Insert):
            check_sink(sink.table, insert.target.span)
            if insert.overwrites:
                _check_overwritten(insert, sink.table, logical)
            if sinks.setdefault(sink.table.name, sink.table) != sink.table:
                raise BindError(f'table "{sink.table.name}" is written with other options before', insert.target.span)


def check_ends(statement: Insert | StatementSet | Select, options: Options) -> None:
    """Raise BindError for INSERT OVERWRITE in a job that waits at the end of its input: the rows come when it ends."""
    inserts = statement.inserts if isinstance(statement, StatementSet) else (statement,)
    for insert in inserts:
        if isinstance(insert, Insert) and insert.overwrites and not options.finish:
            message = "INSERT OVERWRITE in a job that waits at the end of its input"
            raise BindError(message, insert.target.span, hint="SET 'execution.end-of-input' = 'finish' before it.")


def _check_overwritten(insert: Insert, table: Table, logical: Iterable[ResultSink]) -> None:
    """Raise UnsupportedError unless a table can be overwritten, and the input of its job ends."""
    if not sink_of(table).overwrites:
        hint = "Write INSERT INTO, and run sqlstream with --fresh, which deletes what the job wrote before."
        what = f'the connector "{table.connector}"' if table.connector is not None else "a table of the warehouse"
        raise UnsupportedError(f"INSERT OVERWRITE into {what}", insert.target.span, hint=hint)
    for node in (n for sink in logical for n in walk(sink)):
        if isinstance(node, Scan) and not is_bounded(node.table):
            hint = "Write INSERT INTO, or read a table whose input ends."
            what = f'INSERT OVERWRITE from table "{node.table.name}", whose rows do not end'
            raise UnsupportedError(what, insert.target.span, hint=hint)


def tables_of(logical: Iterable[ResultSink]) -> set[str]:
    """Return the names of the tables that plans read, look up and write."""
    nodes = [node for sink in logical for node in walk(sink)]
    return {node.table.name for node in nodes if isinstance(node, Scan | LookupJoin | ResultSink)}


def _check_errors(table: Table, catalog: Catalog) -> None:
    """Raise BindError if the `errors-to` table of a table is declared with columns that malformed rows do not have."""
    name = errors_to(table)
    declared = catalog.declared(name) if name else None
    if declared is None:
        return
    types = [(c.name, c.type) for c in declared.columns] if isinstance(declared, Table) else None
    if types != [(c.name, c.type) for c in MALFORMED] or not isinstance(declared, Table) or declared.connector:
        raise BindError(
            f'table "{table.name}": malformed rows cannot go into "{name}", which is declared with other columns',
            table.span,
            hint=f"Give their table another name, or declare it with: {', '.join(f'{c.name} {c.type}' for c in MALFORMED)}.",
        )
