"""Process functions with other states: by their names, and as the method `migrate` of the class says.

`migrate` is a static method or a class method. It gets the types of the states that the job has, by their names, and returns SQL
for states of the class: of a value any expression of DuckDB over the names of the old values of the key, of a list or a map the
name of an old one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import duckdb
from msgspec import structs

from sqlstream.catalog import ProcessFunction
from sqlstream.duck.clock import NOW
from sqlstream.duck.sql import quote_name
from sqlstream.functions import pickling
from sqlstream.jobs.upgrades.adaptations.adaptation import Adaptation
from sqlstream.jobs.upgrades.adaptations.aggregates import kept_columns_note, removed_notes, ttl_notes
from sqlstream.jobs.upgrades.adaptations.carrying import CannotAdapt, Carrying, listed
from sqlstream.jobs.upgrades.changes import Adapted
from sqlstream.jobs.upgrades.older_settings import settings_of
from sqlstream.logical.plan.state_settings import ProcessState
from sqlstream.operators.process.operator import ProcessOperator
from sqlstream.operators.process.tables import AT, KEYS
from sqlstream.warehouse.jobs import OperatorRecord, ShapeItem

# What a state is in a shape whose type is that of a value in the row of a key.
_VALUE = "value"


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
    def carrying(self) -> Carrying:
        """The columns of the old state that the new one takes over, with states under their new names."""
        names = [one.name for one in self._operator.function.states]
        return Carrying(_renamed(self.old, self._migrated, names), self.new)

    def adapted(self) -> Adapted:
        self.check_settings()
        operator, carrying, said = self._operator, self.carrying, self._migrated
        for item in carrying.added:
            if item.input in self.after.changing and item.kind == "column":
                raise CannotAdapt(f'the column "{item.name}" was not kept, and rows without it may be taken back')
        made = _written(carrying, operator)
        converted = _converted(self.old, carrying, operator, said)
        made |= converted
        sources = {KEYS: KEYS} if any(table.name == KEYS for table in self.old.tables) else {}
        names = {name for _, name in converted}
        states = [s for s in operator.keeps if s.column is not None and s.column.name in names]
        added = [
            item for item in carrying.added if item.kind == "state" and item.name not in {s.state.name for s in states}
        ]
        assert self.old.shape is not None
        known = {item.name for item in self.old.shape.of_kind("state")}
        notes = [f'state "{was}" is called "{name}" now' for name, was in said.items() if was in known and was != name]
        notes += [*carrying.widened(), *ttl_notes(carrying), *kept_columns_note(carrying.added)]
        notes += [f'state "{s.state.name}": by migrate, {said[s.state.name]}' for s in states]
        notes += [f"state {listed(added)}: empty"] if added else []
        notes += removed_notes(carrying)
        return self.result(notes, replace(carrying, made=made, sources=sources).tables())


# -- what the class says


def _migrations(old: OperatorRecord, operator: ProcessOperator) -> dict[str, str]:
    """Return what the class says of its states: SQL by name. Raises CannotAdapt."""
    migrate = getattr(_class_of(operator.function), "migrate", None)
    if migrate is None:
        return {}
    assert old.shape is not None
    given = {item.name: item.type for item in old.shape.of_kind("state")}
    try:
        said: Any = migrate(given)
    except Exception as error:
        raise CannotAdapt(f"migrate of {operator.function.name} fails: {type(error).__name__}: {error}") from error
    if not isinstance(said, Mapping) or not all(isinstance(t, str) for pair in said.items() for t in pair):
        raise CannotAdapt(f"migrate of {operator.function.name} must return SQL by the names of states")
    states = [one.name for one in operator.function.states]
    if unknown := [name for name in said if name not in states]:
        raise CannotAdapt(
            f'migrate of {operator.function.name} names "{unknown[0]}"; its states are {", ".join(states)}'
        )
    return dict(said)


def _class_of(function: ProcessFunction) -> type:
    made: type = pickling.unpack_class(function.name, function.pickled).made
    return made


def _renamed(old: OperatorRecord, said: Mapping[str, str], states: Collection[str]) -> OperatorRecord:
    """Return the record with states under the names that they have now, where these are just other names.

    One that the class has under its old name, too, is there twice.
    """
    assert old.shape is not None
    known = {item.name for item in old.shape.of_kind("state")}
    renamed = {name: was for name, was in said.items() if was in known and was != name}
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
    record: OperatorRecord, carrying: Carrying, operator: ProcessOperator, said: Mapping[str, str]
) -> dict[tuple[str, str], str]:
    """Return the SQL of the values that `migrate` converts, over the rows of the old table of keys. Raises CannotAdapt."""
    assert record.shape is not None
    old = {item.name: item for item in record.shape.of_kind("state")}
    values = {
        name: item.columns[KEYS][0] for name, item in old.items() if item.expression == _VALUE and KEYS in item.columns
    }
    renamed = {item.name for item in carrying.old_shape.of_kind("state")}
    found = {}
    for state in operator.keeps:
        sql = said.get(state.state.name)
        if sql is None or (state.state.name in renamed and _is_name(sql)):
            continue
        if state.column is None or state.state.kind != "value":
            raise CannotAdapt(f'migrate can give the {state.state.kind} "{state.state.name}" another name only, no SQL')
        row = ", ".join(f"{quote_name(column)} AS {quote_name(name)}" for name, column in values.items())
        if not row:
            raise CannotAdapt(f'migrate of "{state.state.name}": the job has no values of keys')
        _check(state.state.name, sql, {name: old[name].type for name in values})
        found[KEYS, state.column.name] = f"(SELECT {sql} FROM (SELECT {row}))"
    return found


def _is_name(sql: str) -> bool:
    return sql.isidentifier()


def _check(name: str, sql: str, types: Mapping[str, str]) -> None:
    """Raise CannotAdapt where DuckDB does not take the SQL of a state."""
    columns = ", ".join(f"CAST(NULL AS {type}) AS {quote_name(n)}" for n, type in types.items())
    try:
        with duckdb.connect() as con:
            con.execute(f"SELECT {sql} FROM (SELECT {columns}) LIMIT 0")
    except duckdb.Error as error:
        raise CannotAdapt(f'migrate of "{name}": {str(error).splitlines()[0]}') from error


def _written(carrying: Carrying, operator: ProcessOperator) -> dict[tuple[str, str], str]:
    """Return the SQL of when states were written that have a time to live only now: values with their key, others now."""
    held = {pair.new.name: pair.old for pair in carrying.items if pair.new.kind == "state"}
    found: dict[tuple[str, str], str] = {}
    for state in operator.keeps:
        was = held.get(state.state.name)
        if was is None or not state.ttl:
            continue
        if state.written is not None and len(was.columns.get(KEYS, ())) < 2:
            found[KEYS, state.written.name] = AT.name
        if state.table is not None and not _had_times(was):
            found[state.table, AT.name] = f"epoch_us({NOW})"
    return found


def _had_times(item: ShapeItem) -> bool:
    return any(AT.name in columns for columns in item.columns.values())
