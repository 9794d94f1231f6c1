"""Runs CREATE STATE CHECK and DROP STATE CHECK in a warehouse."""

from __future__ import annotations

import re
from collections.abc import Callable

import duckdb
from msgspec.structs import replace

from sqlstream.compiler.catalog_answers import Answer
from sqlstream.errors import BindError, Span, SqlStreamError, missing
from sqlstream.sql.nodes import CreateStateCheck, DropStateCheck
from sqlstream.sql.state_checks import ACTION, EVERY, STATE_CHECK_OPTIONS, option_of
from sqlstream.units import now
from sqlstream.warehouse.checks import MAX_ROWS, STOP, WARN, StateCheck, checks, drop_check, find_check, write_check
from sqlstream.warehouse.jobs import JobRecord, read_record
from sqlstream.warehouse.paths import Warehouse

_BATCHES = re.compile(r"\s*([1-9]\d{0,8})\s*(batch|batches)?\s*", re.IGNORECASE)
Query = Callable[[str], duckdb.DuckDBPyRelation]


def change_state_check(statement: CreateStateCheck | DropStateCheck, warehouse: Warehouse, query: Query) -> Answer:
    """Create or drop a state check; a running job applies it from its next batch on. Raises errors that point into it."""
    if isinstance(statement, DropStateCheck):
        return _drop(statement, warehouse)
    return _create(statement, warehouse, query)


def _create(statement: CreateStateCheck, warehouse: Warehouse, query: Query) -> Answer:
    name = statement.name
    check = _check(statement)
    before = find_check(warehouse, name.text)
    if before is not None and statement.if_not_exists:
        return _answer(f'state check "{before.name}" exists')
    if before is not None and not statement.or_replace:
        hint = "Write CREATE OR REPLACE STATE CHECK, or DROP STATE CHECK first."
        raise BindError(f'state check "{name.text}" exists already, on job "{before.job}"', name.span, hint=hint)
    record = read_record(warehouse.fs, warehouse.job(check.job))
    if record is not None:
        check = _fitting(statement, check, record)
        _compile(statement.query, query)
    write_check(warehouse, check)
    later = "" if record is not None else f'; job "{check.job}" is not there yet, and is checked once it starts'
    return _answer(f'state check "{check.name}" created{later}')


def _check(statement: CreateStateCheck) -> StateCheck:
    name, options = statement.name, statement.options
    if name.text.lower() == MAX_ROWS:
        raise BindError(f'"{name.text}" is the name of the checks that sqlstream.state.max-rows makes', name.span)
    for key, value in options.items():
        if key not in STATE_CHECK_OPTIONS:
            raise BindError(
                f'option "{key}" does not exist', value.key_span, hint=missing("option", key, STATE_CHECK_OPTIONS)
            )
    every = _BATCHES.fullmatch(option_of(options, EVERY))
    if every is None:
        raise BindError(f'option "{EVERY}": needs a number of batches, such as 10 batches', options[EVERY].span)
    action = option_of(options, ACTION).lower()
    if action not in (STOP, WARN):
        raise BindError(f'option "{ACTION}": needs one of {STOP}, {WARN}', options[ACTION].span)
    operator = statement.operator.text if statement.operator else None
    return StateCheck(
        name.text, statement.job.text, operator, statement.query.text.strip(), int(every[1]), action, now()
    )


def _fitting(statement: CreateStateCheck, check: StateCheck, record: JobRecord) -> StateCheck:
    """Return a check with the names of the job and its operator as recorded. Raises BindError if there is no such operator."""
    if statement.operator is None:
        return replace(check, job=record.job)
    name = statement.operator.text
    operator = next((o.name for o in record.operators if o.name.lower() == name.lower()), None)
    if operator is None:
        hint = missing("operator", name, [o.name for o in record.operators])
        raise BindError(f'job "{record.job}" has no operator "{name}"', statement.operator.span, hint=hint)
    return replace(check, job=record.job, operator=operator)


def _compile(span: Span, query: Query) -> None:
    """Raise the error of a query that does not fit the state, at its position in the statement."""
    try:
        query(span.text)
    except SqlStreamError as error:
        if error.span is not None:
            error.span = Span(span.source, span.start + error.span.start, span.start + error.span.end)
        raise


def _drop(statement: DropStateCheck, warehouse: Warehouse) -> Answer:
    name = statement.name
    if find_check(warehouse, name.text) is None:
        if statement.if_exists:
            return _answer(f'state check "{name.text}" does not exist')
        hint = missing("state check", name.text, [check.name for check in checks(warehouse)])
        raise BindError(f'state check "{name.text}" does not exist', name.span, hint=hint)
    drop_check(warehouse, name.text)
    return _answer(f'state check "{name.text}" dropped')


def _answer(text: str) -> Answer:
    return Answer(("result",), ((text,),))
