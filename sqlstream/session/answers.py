"""The answers to SHOW, DESCRIBE and EXPLAIN, and the results of statements about savepoints and state checks, as relations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import assert_never

import duckdb
import pyarrow as pa

from sqlstream.compiler.catalog_answers import Answer, WarehouseQuery
from sqlstream.compiler.compiler import Explanation, Question, SavepointRequest
from sqlstream.errors import NotWritableError, SqlStreamError
from sqlstream.jobs.savepoints import drop_savepoint, take_savepoint
from sqlstream.session.described_state import described_state
from sqlstream.session.explaining import explained
from sqlstream.session.state_checks import change_state_check
from sqlstream.sql.nodes import CreateSavepoint, CreateStateCheck, DescribeState, DropSavepoint, DropStateCheck
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.storage_errors import make_folder


def answered(
    question: Question, warehouse: Warehouse, query: Callable[[str], duckdb.DuckDBPyRelation]
) -> duckdb.DuckDBPyRelation:
    """Run a statement such as SHOW, EXPLAIN or CREATE SAVEPOINT, and return its answer. `query` runs state queries."""
    match question:
        case WarehouseQuery(sql):
            if warehouse.fs.local:
                # Before the first job the answer has no rows; it is an error only where no folder can be made.
                with contextlib.suppress(NotWritableError):
                    make_folder(warehouse.root)
            return query(sql)
        case Explanation(job, stage):
            lines = explained(job, stage).splitlines()
            return relation_of(Answer(("plan",), tuple((line,) for line in lines)))
        case SavepointRequest(statement):
            return relation_of(_of_savepoint(statement, warehouse))
        case Answer():
            return relation_of(question)
        case CreateStateCheck() | DropStateCheck():
            return relation_of(change_state_check(question, warehouse, query))
        case DescribeState():
            return relation_of(described_state(question, warehouse))
        case _:
            assert_never(question)


def _of_savepoint(statement: CreateSavepoint | DropSavepoint, warehouse: Warehouse) -> Answer:
    """Create or drop a savepoint; errors point at a name in the statement."""
    name = statement.name.text
    try:
        if isinstance(statement, CreateSavepoint):
            record = take_savepoint(warehouse, statement.job.text, name).record
            return Answer(("savepoint", "job", "version"), ((record.name, record.job, str(record.version)),))
        if not statement.if_exists or name.lower() in warehouse.savepoints():
            drop_savepoint(warehouse, name)
    except SqlStreamError as error:
        named = statement.name
        if isinstance(statement, CreateSavepoint) and error.message.startswith("job "):
            named = statement.job
        error.span = error.span or named.span
        raise
    return Answer(("dropped",), ((name,),))


def relation_of(answer: Answer) -> duckdb.DuckDBPyRelation:
    """Return an answer as a relation of VARCHAR columns."""
    columns = list(zip(*answer.rows, strict=True)) or [()] * len(answer.columns)
    arrays = [pa.array(column, pa.string()) for column in columns]
    return duckdb.connect().from_arrow(pa.table(arrays, names=list(answer.columns)))
