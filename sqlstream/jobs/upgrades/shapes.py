"""The shapes of the operators of a plan: what each computes and stores, as plain data for the job's record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from msgspec.structs import replace

from sqlstream.logical.plan.late_rows import LateRows
from sqlstream.logical.plan.lookups import LookupJoin
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import Stateful
from sqlstream.logical.plan.process import SideOutputRead
from sqlstream.logical.plan.ranks import whole_ranks
from sqlstream.logical.plan.relational import Expand, Filter, Lateral, Projection, Union
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.tables import ResultSink, Scan
from sqlstream.physical.families.declared import (
    CallItem,
    ColumnItem,
    InputOrigins,
    Item,
    Origins,
    StateItem,
    computed_columns,
    inlined,
    inlined_call,
    own_sql,
)
from sqlstream.physical.families.registry import operator_plan
from sqlstream.physical.plan import PhysicalPlan, StatefulStage
from sqlstream.warehouse.jobs import OperatorShape, RowPath, ShapeItem


def shapes(plan: PhysicalPlan) -> tuple[OperatorShape, ...]:
    """Return the shapes of the stages of a plan, in their order."""
    return tuple(_ShapeBuilder(stage, plan).shape() for stage in plan.stages)


def shape_kind(node: Stateful | type[Stateful]) -> str:
    """Return the kind of a node as shapes store it: "WindowAggregate" for window_aggregate, whatever the name of its class."""
    return "".join(part.capitalize() for part in node.node_kind.split("_"))


class _ShapeBuilder:
    """Builds the shape of one stage of a plan."""

    def __init__(self, stage: StatefulStage, plan: PhysicalPlan):
        assert stage.node is not None
        self._node, self._operator, self._physical = stage.node, stage.operator, plan
        self._plan, self._inputs = operator_plan(stage.node), InputOrigins(stage.node)

    def shape(self) -> OperatorShape:
        node = self._node
        changing = tuple(index for index, child in enumerate(node.children) if child.is_changelog)
        settings = replace(self._plan.settings(self._inputs), changing=changing)
        paths = [
            RowPath(path.source, path.steps, input=index, scan=path.scan)
            for index, child in enumerate(node.children)
            for path in _paths(child, self._physical)
        ]
        inputs = tuple(dict.fromkeys(path.source for path in paths))
        return OperatorShape(
            shape_kind(node),
            tuple(self._keys()),
            tuple(map(self._item, self._plan.items())),
            inputs=inputs,
            paths=tuple(paths),
            named=bool(node.name),
            settings=settings,
        )

    def _keys(self) -> Iterator[ShapeItem]:
        """Yield the keys, each with the columns of state tables that hold it."""
        keys = self._node.keys_by_name
        stored = self._operator.hash_columns if keys else ()
        for number, (name, expressions) in enumerate(keys):
            written = " = ".join(e.sql for e in expressions)
            indexes = self._node.keyed_inputs if len(expressions) > 1 else (0,)
            pairs = zip(expressions, indexes, strict=True)
            origin = " = ".join(self._inputs.inlined(expression, index) for expression, index in pairs)
            columns = {
                t.name: (stored[number],)
                for t in self._operator.tables
                if number < len(stored) and any(c.name == stored[number] for c in t.columns)
            }
            yield ShapeItem(name, written, expressions[0].type, "key", _other(origin, written), columns)

    def _item(self, item: Item) -> ShapeItem:
        holds = self._operator.holds
        match item:
            case StateItem(state):
                kind = f"broadcast {state.kind}" if state.broadcast else state.kind
                type = f"{state.key_type} to {state.type}" if state.key_type else state.type
                return ShapeItem(state.name, kind, type, "state", columns=holds.get(state.name, {}))
            case CallItem(call, manner):
                written = f"{call.sql}{manner}"
                origin = inlined_call(call, self._inputs.origins[0]) + manner
                columns = {} if item.made_anew else holds.get(call.name, {})
                return ShapeItem(call.name, written, call.type, "aggregate", _other(origin, written), columns)
            case ColumnItem(name, expression, index):
                origin = _other(self._inputs.inlined(expression, index), expression.sql)
                columns = holds.get(item.held_as, {})
                return ShapeItem(name, expression.sql, expression.type, origin=origin, columns=columns, input=index)
            case _:
                assert_never(item)


def _other(origin: str, written: str) -> str:
    """Return the origin of an expression; empty if it equals `written`, the expression's own SQL."""
    return origin if origin != written else ""


# -- how rows come


def sink_paths(sinks: Iterable[ResultSink], plan: PhysicalPlan, table: str) -> tuple[RowPath, ...]:
    """Return the paths on which rows come to the sink of a table."""
    paths = []
    for sink in sinks:
        if sink.table.name.lower() == table.lower():
            pairs = [(own.name, target.name) for own, target in zip(sink.input.schema, sink.columns, strict=True)]
            for path in _paths(sink.input, plan):
                columns = {target: path.columns[own] for own, target in pairs}
                paths.append(RowPath(path.source, path.steps, columns, scan=path.scan))
    return tuple(paths)


def _paths(node: Node, plan: PhysicalPlan) -> list[RowPath]:
    """Return the paths of rows to a node from the tables and operators below it."""
    if isinstance(node, Scan):
        index = plan.index_of(node)
        assert index is not None
        columns = {f.name: own_sql(f.name) for f in node.schema}
        return [RowPath(node.table.name, columns=columns, scan=plan.scans[index].name)]
    if isinstance(node, StatefulNode) and (name := _name_of(node, plan)) is not None:
        # By what calls compute: their names may be made up.
        computed = computed_columns(node)
        return [RowPath(name, columns={f.name: computed.get(f.name, own_sql(f.name)) for f in node.schema})]
    if isinstance(node, Projection):
        return [
            replace(path, columns={i.name: inlined(i.expression, _moved(path)) for i in node.items})
            for path in _paths(node.input, plan)
        ]
    if isinstance(node, Union):
        paths = []
        for child in node.inputs:
            pairs = list(zip(child.schema, node.schema, strict=True))
            for path in _paths(child, plan):
                paths.append(replace(path, columns={to.name: path.columns[own.name] for own, to in pairs}))
        return paths
    if isinstance(node, Filter) and whole_ranks(node) is not None:
        return _paths(node.input, plan)
    if isinstance(node, Filter):
        return [
            replace(path, steps=(*path.steps, f"WHERE {inlined(node.predicate, _moved(path))}"))
            for path in _paths(node.children[0], plan)
        ]
    step = _step(node)
    paths = []
    for child in node.children:
        for path in _paths(child, plan):
            own = {f.name: path.columns.get(f.name, own_sql(f.name)) for f in node.schema}
            paths.append(replace(path, columns=own, steps=(*path.steps, *step)))
    return paths


def _step(node: Node) -> tuple[str, ...]:
    """Return the step of a node on a path, as text. Records store it, so unlike the text of EXPLAIN it must not change."""
    match node:
        case Expand():
            return (f"Expand {node.column} {', '.join(map(str, node.numbers))}",)
        case LookupJoin():
            table = node.table
            by = ", ".join(f"{table.name}.{column} = {key.sql}" for key, column in node.keys)
            where = f" where {node.condition.sql}" if node.condition else ""
            return (f"LookupJoin {node.kind} {table.name} ({table.connector or 'warehouse table'}) by {by}{where}",)
        case Lateral():
            return (f"Lateral{' outer' if node.outer else ''} {node.rows.sql}",)
        case SideOutputRead():
            return (f"SideOutput {node.name}",)
        case LateRows():
            return (f'LateRows "{node.input_name}"' if node.input_name else "LateRows",)
    # Operators, and windows that an operator above them computes, are in the shapes of the operators.
    return ()


def _name_of(node: StatefulNode, plan: PhysicalPlan) -> str | None:
    names = [(stage.node, stage.name) for stage in plan.stages]
    same = [name for other, name in names if other is node] or [name for other, name in names if other == node]
    return next(iter(same), None)


def _moved(path: RowPath) -> Origins:
    """Return the columns of a path whose SQL is not their own name."""
    return {name: sql for name, sql in path.columns.items() if sql != own_sql(name)}
