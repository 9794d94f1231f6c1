"""Adapts process functions to other states: by the names of states, and with the method `migrate` of the class.

`migrate` is a static method or a class method. It gets the types of the job's states by name, and returns SQL by the names of
states of the class: for a value any DuckDB expression over the names of the key's old values, for a list or a map the name of an
old one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import duckdb
from msgspec import structs

from sqlstream.catalog import ProcessFunction
from sqlstream.duck.sql import quote_name
from sqlstream.duck.time_variables import NOW
from sqlstream.functions import pickling
from sqlstream.jobs.upgrades.adaptations.adaptation import Adaptation
from sqlstream.jobs.upgrades.adaptations.aggregates import kept_columns_note, removed_notes, ttl_notes
from sqlstream.jobs.upgrades.adaptations.transfer import CannotAdapt, StateTransfer, listed
from sqlstream.jobs.upgrades.arrival import BEFORE_ALL
from sqlstream.jobs.upgrades.changes import AdaptedOperator
from sqlstream.jobs.upgrades.older_settings import settings_of
from sqlstream.logical.plan.state_settings import ProcessState
from sqlstream.operators.process.operator import ProcessOperator
from sqlstream.operators.process.tables import AT, KEYS
from sqlstream.warehouse.jobs import OperatorRecord, ShapeItem

# The expression of a state in a shape, if it is a value in the row of a key.
_VALUE = "value"
# The first column of the order in which rows arrive, in the tables of rows that wait (see `InputPlan.arriving`).
_POSITION = "o0"


class ProcessAdaptation(Adaptation[ProcessState]):
    """The states of a process function."""

    may_differ: ClassVar[tuple[str, ...]] = ("state_ttls", "timers")

    @cached_property
    def _operator(self) -> ProcessOperator:
        operator = self.stage.operator
        assert isinstance(operator, ProcessOperator)
        return operator

    @cached_property
    def _migrated(self) -> dict[str, str]:
        """The SQL that `migrate` returns, by the name of the state. Raises CannotAdapt."""
        return _migrations(self.old, self._operator)

    @cached_property
    def transfer(self) -> StateTransfer:
        """The columns of the old state that the new state takes over, with states under their new names."""
        names = [one.name for one in self._operator.function.states]
        return StateTransfer(_renamed(self.old, self._migrated, names), self.new)

    def adapted(self) -> AdaptedOperator:
        self.check_settings()
        operator, transfer, state_sql = self._operator, self.transfer, self._migrated
        for item in transfer.added:
            if item.input in self.after.changing and item.kind == "column":
                raise CannotAdapt(f'the column "{item.name}" was not kept, and rows without it may be taken back')
        expressions = {**_written(transfer, operator), **_positioned(transfer)}
        converted = _converted(self.old, transfer, operator, state_sql)
        expressions |= converted
        sources = {KEYS: KEYS} if any(table.name == KEYS for table in self.old.tables) else {}
        names = {name for _, name in converted}
        states = [s for s in operator.keeps if s.column is not None and s.column.name in names]
        added = [
            item for item in transfer.added if item.kind == "state" and item.name not in {s.state.name for s in states}
        ]
        assert self.old.shape is not None
        old_names = {item.name for item in self.old.shape.of_kind("state")}
        notes = [
            f'state "{was}" is called "{name}" now'
            for name, was in state_sql.items()
            if was in old_names and was != name
        ]
        notes += [*transfer.widened(), *ttl_notes(transfer), *kept_columns_note(transfer.added)]
        notes += [f'state "{s.state.name}": by migrate, {state_sql[s.state.name]}' for s in states]
        notes += [f"state {listed(added)}: empty"] if added else []
        notes += removed_notes(transfer)
        return self.result(notes, replace(transfer, expressions=expressions, sources=sources).tables())


# -- the method `migrate`


def _migrations(old: OperatorRecord, operator: ProcessOperator) -> dict[str, str]:
    """Call `migrate` of the class, and return its SQL by the names of states; empty without the method. Raises CannotAdapt."""
    migrate = getattr(_class_of(operator.function), "migrate", None)
    if migrate is None:
        return {}
    assert old.shape is not None
    state_types = {item.name: item.type for item in old.shape.of_kind("state")}
    try:
        state_sql: Any = migrate(state_types)
    except Exception as error:
        raise CannotAdapt(f"migrate of {operator.function.name} fails: {type(error).__name__}: {error}") from error
    if not isinstance(state_sql, Mapping) or not all(isinstance(t, str) for pair in state_sql.items() for t in pair):
        raise CannotAdapt(f"migrate of {operator.function.name} must return SQL by the names of states")
    states = [one.name for one in operator.function.states]
    if unknown := [name for name in state_sql if name not in states]:
        raise CannotAdapt(
            f'migrate of {operator.function.name} names "{unknown[0]}"; its states are {", ".join(states)}'
        )
    return dict(state_sql)


def _class_of(function: ProcessFunction) -> type:
    python_class: type = pickling.unpack_class(function.name, function.pickled).python_class
    return python_class


def _renamed(old: OperatorRecord, state_sql: Mapping[str, str], states: Collection[str]) -> OperatorRecord:
    """Return the record with states under their new names, if `migrate` returns just their old names.

    A state occurs twice if the class has its old name, too.
    """
    assert old.shape is not None
    old_names = {item.name for item in old.shape.of_kind("state")}
    renamed = {name: was for name, was in state_sql.items() if was in old_names and was != name}
    items: list[ShapeItem] = []
    for item in old.shape.items:
        names = [name for name, was in renamed.items() if was == item.name] if _is_state(item) else []
        stays = not _is_state(item) or (item.name not in renamed and (not names or item.name in states))
        items += [*([item] if stays else []), *(structs.replace(item, name=name) for name in names)]
    settings = settings_of(old.shape)
    assert isinstance(settings, ProcessState)
    before = dict(settings.state_ttls)
    ttls = {name: ttl for name, ttl in before.items() if name not in renamed}
    ttls |= {name: before[was] for name, was in renamed.items() if was in before}
    settings = structs.replace(settings, state_ttls=tuple(ttls.items()))
    return structs.replace(old, shape=structs.replace(old.shape, items=tuple(items), settings=settings))


def _is_state(item: ShapeItem) -> bool:
    return item.kind == "state"


# -- columns


def _converted(
    record: OperatorRecord, transfer: StateTransfer, operator: ProcessOperator, state_sql: Mapping[str, str]
) -> dict[tuple[str, str], str]:
    """Return the SQL of the values that `migrate` converts, over the rows of the old table of keys. Raises CannotAdapt."""
    assert record.shape is not None
    old = {item.name: item for item in record.shape.of_kind("state")}
    values = {
        name: item.columns[KEYS][0] for name, item in old.items() if item.expression == _VALUE and KEYS in item.columns
    }
    renamed = {item.name for item in transfer.old_shape.of_kind("state")}
    expressions = {}
    for state in operator.keeps:
        sql = state_sql.get(state.state.name)
        if sql is None or (state.state.name in renamed and _is_name(sql)):
            continue
        if state.column is None or state.state.kind != "value":
            raise CannotAdapt(f'migrate can give the {state.state.kind} "{state.state.name}" another name only, no SQL')
        row = ", ".join(f"{quote_name(column)} AS {quote_name(name)}" for name, column in values.items())
        if not row:
            raise CannotAdapt(f'migrate of "{state.state.name}": the job has no values of keys')
        _check(state.state.name, sql, {name: old[name].type for name in values})
        expressions[KEYS, state.column.name] = f"(SELECT {sql} FROM (SELECT {row}))"
    return expressions


def _is_name(sql: str) -> bool:
    return sql.isidentifier()


def _check(name: str, sql: str, types: Mapping[str, str]) -> None:
    """Raise CannotAdapt if DuckDB does not accept the SQL of a state."""
    columns = ", ".join(f"CAST(NULL AS {type}) AS {quote_name(n)}" for n, type in types.items())
    try:
        with duckdb.connect() as con:
            con.execute(f"SELECT {sql} FROM (SELECT {columns}) LIMIT 0")
    except duckdb.Error as error:
        raise CannotAdapt(f'migrate of "{name}": {str(error).splitlines()[0]}') from error


def _written(transfer: StateTransfer, operator: ProcessOperator) -> dict[tuple[str, str], str]:
    """Return the SQL of the write times of states that have gained a TTL: for values the time of their key, for others now."""
    held = {pair.new.name: pair.old for pair in transfer.items if pair.new.kind == "state"}
    expressions: dict[tuple[str, str], str] = {}
    for state in operator.keeps:
        was = held.get(state.state.name)
        if was is None or not state.ttl:
            continue
        if state.write_time is not None and len(was.columns.get(KEYS, ())) < 2:
            expressions[KEYS, state.write_time.name] = AT.name
        if state.table is not None and not _had_times(was):
            expressions[state.table, AT.name] = f"epoch_us({NOW})"
    return expressions


def _positioned(transfer: StateTransfer) -> dict[tuple[str, str], str]:
    """Return the SQL of the positions in the order of arrival of rows that wait, if columns decided ties before."""
    before = {table.name: dict(table.columns) for table in transfer.old.tables}
    return {
        (table.name, _POSITION): BEFORE_ALL
        for table in transfer.new.tables
        if transfer.gains_arrival and _POSITION in dict(table.columns) and _POSITION not in before.get(table.name, {})
    }


def _had_times(item: ShapeItem) -> bool:
    return any(AT.name in columns for columns in item.columns.values())
