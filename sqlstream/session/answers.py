"""The answers to SHOW, DESCRIBE and EXPLAIN, and the results of statements about savepoints and state checks."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO, assert_never

import duckdb
import pyarrow as pa

from sqlstream.compiler.catalog_answers import Answer, WarehouseQuery
from sqlstream.compiler.compiler import Explanation, Question, SavepointRequest
from sqlstream.errors import NotWritableError, SqlStreamError
from sqlstream.jobs.savepoints.named_savepoints import drop_savepoint, take_savepoint
from sqlstream.session.explaining import as_it_goes_on, described_state, explained
from sqlstream.session.rendering import write_table
from sqlstream.session.state_checks import change_state_check
from sqlstream.sql.nodes import CreateSavepoint, CreateStateCheck, DescribeState, DropSavepoint, DropStateCheck
from sqlstream.storage_errors import make_folder
from sqlstream.warehouse.paths import Warehouse

if TYPE_CHECKING:
    from sqlstream.session.session import Session


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
            lines = explained(as_it_goes_on(job, warehouse), stage).splitlines()
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
    """Create or drop a savepoint, and return the answer. Errors point at the name of the savepoint or of the job."""
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


def write_answer(session: Session, question: Question, stream: TextIO | io.TextIOBase) -> None:
    """Write the answer to a statement such as SHOW, DESCRIBE or EXPLAIN; a changed state check is only a notice."""
    if isinstance(question, Explanation):
        job = as_it_goes_on(question.job, session.warehouse)
        stream.write(explained(job, question.stage) + "\n")
        return
    relation = session.answer(question)
    if isinstance(question, CreateStateCheck | DropStateCheck):
        session.notice(relation.fetchall()[0][0])
        return
    if isinstance(question, Answer) and question.columns[0].startswith("create "):
        # The text of a statement, to be copied.
        stream.write("".join(f"{row[0]};\n" for row in question.rows))
        return
    write_table(relation, stream)
