"""Binds statements under the two semantics of expressions: Flink's, and DuckDB's, which older jobs began with and keep."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import duckdb

from sqlstream.catalog import Catalog, Table
from sqlstream.connectors.registry import PRINT
from sqlstream.errors import SqlStreamError, StatementWarning
from sqlstream.logical.bind.definitions import bind_insert, bind_select, bind_table, in_one_job
from sqlstream.logical.bind.expressions.type_checker import TypeChecker
from sqlstream.logical.bind.queries import Binder
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.identity import plan_digest
from sqlstream.logical.plan.state_settings import Semantics
from sqlstream.logical.plan.tables import ResultSink, Scan
from sqlstream.sql.nodes import CreateTable, Insert, Select, StatementSet


def new_binder(catalog: Catalog, con: duckdb.DuckDBPyConnection, semantics: Semantics = "flink") -> Binder:
    """Return a binder over a catalog whose functions are registered in `con`; its expressions follow `semantics`."""
    names = [function.name.lower() for function in catalog.duck_functions]
    return Binder(catalog, TypeChecker(con, names, catalog.broken, semantics))


def _in_duckdbs(binder: Binder) -> Binder | None:
    """Return a binder over the same tables under DuckDB's semantics; None if no expression of the last statement differs."""
    catalog, checker = binder.catalog, binder.checker
    if not checker.meaning.differs and all(table.in_duckdbs is None for table in catalog.tables.values()):
        return None
    other = copy(catalog)
    other.tables = {
        name: table
        if table.in_duckdbs is None
        else replace(table, columns=table.in_duckdbs[0], watermark=table.in_duckdbs[1])
        for name, table in catalog.tables.items()
    }
    return new_binder(other, checker.con, "duckdb")


def bound(statement: Insert | StatementSet | Select, binder: Binder) -> tuple[ResultSink, ...]:
    """Return the plans of a statement, one per INSERT. Raises BindError and UnsupportedError."""
    match statement:
        case Insert():
            return in_one_job([bind_insert(statement, binder)])
        case StatementSet():
            return in_one_job([bind_insert(insert, binder) for insert in statement.inserts])
        case Select():
            return in_one_job([bind_select(statement, binder, "result", PRINT)])


def bound_in_duckdbs(
    statement: Insert | StatementSet | Select, binder: Binder, logical: tuple[ResultSink, ...]
) -> tuple[ResultSink, ...] | None:
    """Return the plans of the last bound statement under DuckDB's semantics; None if they equal `logical`, those under Flink's.

    Also None for a bare SELECT: it never continues an older job, so it needs Flink's semantics only. And for a statement that
    DuckDB's values refuse: no job has begun with it.
    """
    other = None if isinstance(statement, Select) else _in_duckdbs(binder)
    if other is None:
        return None
    try:
        before = bound(statement, other)
    except SqlStreamError:
        return None
    return None if plan_digest(before) == plan_digest(logical) else before


def noticed(binder: Binder, logical: tuple[ResultSink, ...]) -> tuple[StatementWarning, ...]:
    """Return the warnings about expressions of the statement that was bound last, and of the tables that it scans."""
    nodes = (node for sink in logical for node in walk(sink))
    tables = [notice for node in nodes if isinstance(node, Scan) for notice in node.table.notices]
    return tuple(dict.fromkeys([*tables, *binder.checker.meaning.notices.values()]))


def bound_table(declared: CreateTable, binder: Binder) -> Table:
    """Return the table of CREATE TABLE. Raises BindError and UnsupportedError.

    Its `in_duckdbs` has the columns and the watermark under DuckDB's semantics; None if they are the same.
    """
    table = bind_table(declared, binder.catalog, binder.checker)
    table = replace(table, notices=tuple(binder.checker.meaning.notices.values()))
    other = _in_duckdbs(binder)
    if other is None:
        return table
    try:
        before = bind_table(declared, other.catalog, other.checker)
    except SqlStreamError:
        return table
    expressions = before.columns, before.watermark
    return replace(table, in_duckdbs=expressions if expressions != (table.columns, table.watermark) else None)
