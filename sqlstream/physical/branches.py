"""The stateless paths of a plan: from a scan or a stateful operator up to the next one, each a SELECT."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import CHANGE, FILE_ORDER, INTERNAL
from sqlstream.duck.sql import Items, Select, quote_name
from sqlstream.duck.time_variables import WATERMARK_VARIABLE, reading
from sqlstream.logical.plan.expressions import Schema
from sqlstream.logical.plan.graph import once
from sqlstream.logical.plan.late_rows import TIME, WATERMARK, LateRows
from sqlstream.logical.plan.lookups import LookupJoin
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import Stateful, Windowed, as_any_node, as_stateful
from sqlstream.logical.plan.process import SideOutputRead
from sqlstream.logical.plan.ranks import whole_ranks
from sqlstream.logical.plan.relational import Expand, Filter, Lateral, Projection, Union
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.tables import ResultSink, Scan
from sqlstream.logical.plan.windows import RegularWindows, SessionWindow, TimeWindows
from sqlstream.operators.groups import stored_columns
from sqlstream.operators.late_rows import late_output
from sqlstream.operators.process.emitted import LATE_RESULT
from sqlstream.operators.windows.late_rows import LATE
from sqlstream.physical.lateral import with_made_rows
from sqlstream.physical.plan import Lookup
from sqlstream.physical.windows import EVENT_TIME, at_their_time, event_time, in_windows
from sqlstream.storage.zsets import WEIGHT

# Up to so many paths, a union keeps each as a path of its own; of more, the paths from one leaf are combined.
_MANY = 16
# The rows of a leaf as they are.
_INPUT = Select("SELECT * FROM _input")


@dataclass(frozen=True, slots=True)
class Branch:
    """A stateless path from one leaf (a scan or a stateful node) upwards: a query over `_input`.

    With `lookups`, it is over the tables of the last lookup. Rows have further columns after the schema's: with
    `weighted` their weight (WEIGHT), with `timed` the event time that put them into windows (EVENT_TIME), with `ordered` the kind
    of change and the position in the source (CHANGE and FILE_ORDER).
    """

    leaf: Scan | Stateful
    sql: Select
    weighted: bool
    timed: bool = False
    ordered: bool = False
    lookups: tuple[Lookup, ...] = ()
    # Whether none of its rows can be late; None: as the leaf's rows are.
    are_never_late: bool | None = None
    # The side output of the leaf that `_input` is; empty for its result.
    output: str = ""
    # Common table expressions, with their names, which `sql` reads; each may read the ones before it.
    common: tuple[tuple[str, Select], ...] = ()

    @property
    def never_late(self) -> bool:
        """Whether none of its rows can be late."""
        return self.leaf.never_late if self.are_never_late is None else self.are_never_late

    @property
    def query(self) -> Select:
        """The whole query, with its common table expressions."""
        parts = ", ".join(f"{name} AS MATERIALIZED ({sql})" for name, sql in self.common)
        return Select(f"SELECT * FROM (WITH {parts} {self.sql})") if parts else self.sql

    def select(self, items: Items) -> Branch:
        """Return the path with a projection above it; the further columns stay."""
        own = [name for name, is_there in ((WEIGHT, self.weighted), (EVENT_TIME, self.timed)) if is_there]
        own += [c.name for c in (CHANGE, *FILE_ORDER)] if self.ordered else []
        added = "".join(f", {name}" for name in own)
        return replace(self, sql=Select(f"SELECT {items}{added} FROM ({self.sql})"))

    def over(self, select: Callable[[Select], Select]) -> Branch:
        """Return the path with `select` applied to its rows."""
        return replace(self, sql=select(self.sql))

    def adding(self, items: str) -> Branch:
        """Return the path with further select items behind its columns."""
        return self.over(lambda rows: Select(f"SELECT *, {items} FROM ({rows})"))

    def at(self, time: str) -> Branch:
        """Return the path with the column EVENT_TIME; `time` is SQL over its rows, a TIMESTAMP."""
        return replace(self.adding(f"{time} AS {EVENT_TIME}"), timed=True)

    def with_weight(self) -> Branch:
        """Return the path with weights: 1 for every row, if it has none yet."""
        if self.weighted:
            return self
        return replace(self.adding(f"CAST(1 AS BIGINT) AS {WEIGHT}"), weighted=True)


def branches(
    node: Node, made_above: RegularWindows | SessionWindow | None = None, *, timed: bool = False
) -> list[Branch]:
    """Return the stateless paths from scans and stateful nodes up to this node, several below a union.

    `made_above` is a node whose windows the operator above makes itself: its rows keep their event time in place of the bounds.
    With `timed`, rows that a window function on the way puts into windows have the column EVENT_TIME.
    """
    return _branches(node, made_above, timed)


@once
def _branches(node: Node, made_above: RegularWindows | SessionWindow | None, timed: bool) -> list[Branch]:
    def below(child: Node) -> list[Branch]:
        return _branches(child, made_above, timed)

    if made_above is not None and node is made_above:
        paths = [b.at(event_time(made_above)) if timed else b for b in branches(made_above.input)]
        return [b.over(lambda rows: at_their_time(made_above, rows)) for b in paths]
    node = as_any_node(node)
    match node:
        case Scan() if node.table.has_changes and node.table.primary_key:
            return [Branch(node, _INPUT, weighted=False, ordered=True)]
        case Filter() if (ranks := whole_ranks(node)) is not None and ranks.is_changelog:
            # The operator filters itself: after an upgrade to a smaller limit it must retract rows that the filter would drop.
            return below(node.input)
        case Filter():
            where = node.predicate.sql
            return [_where(b, _in_file_order(where, node, b)) for b in below(node.input)]
        case Projection():
            items = ", ".join(f"{i.expression.sql} AS {quote_name(i.name)}" for i in node.items)
            return [b.select(Items(_in_file_order(items, node, b))) for b in below(node.input)]
        case TimeWindows():
            paths = [b.at(event_time(node)) if timed else b for b in branches(node.input)]
            return [b.over(lambda rows: in_windows(node, rows)) for b in paths]
        case Expand():
            numbers = ", ".join(map(str, node.numbers))
            number = f"unnest([{numbers}]) AS {quote_name(node.column)}"
            return [b.adding(number) for b in below(node.input)]
        case Lateral():
            return [b.over(lambda rows: with_made_rows(node, rows)) for b in below(node.input)]
        case Union():
            paths = [branch for child in node.inputs for branch in _renamed(child, node.schema, timed)]
            return _in_one([b.with_weight() for b in paths] if node.is_changelog else paths)
        case LookupJoin():
            return [_looked_up(node, b) for b in below(node.input)]
        case LateRows():
            return [_of_late_rows(node)]
        case StatefulNode() if node.marks_late_rows:
            return _emitted(node)
        case SideOutputRead():
            return [replace(branch, output=node.name) for branch in _emitted(node.process)]
        case ResultSink():
            raise TypeError("a sink is not part of a path")
        case _:
            # A leaf: mypy knows that it is a scan or a stateful node.
            return [Branch(node, _INPUT, weighted=node.is_changelog)]


def _where(branch: Branch, condition: str) -> Branch:
    return branch.over(lambda rows: Select(f"SELECT * FROM ({rows}) WHERE {condition}"))


def watermark_variable(node: Node) -> str:
    """Return the name of the variable of DuckDB that holds the watermark of a node above several inputs, such as a union."""
    scans = (scan for scan in node.timed_by if isinstance(scan, Scan))
    names = sorted({repr((s.table.name, sorted(s.table.options.items()), s.by_clock)) for s in scans})
    return f"{WATERMARK_VARIABLE}_{hashlib.sha256('|'.join(names).encode()).hexdigest()[:12]}"


def _in_file_order(sql: str, node: Node, branch: Branch) -> str:
    """Return the SQL of a node over the rows of a path, with CURRENT_WATERMARK as the node's watermark, not the leaf's."""
    if not node.reads_watermark or watermark_variable(node) == watermark_variable(branch.leaf):
        return sql
    return reading({WATERMARK_VARIABLE: f"getvariable('{watermark_variable(node)}')"}, sql)


def _of_late_rows(node: LateRows) -> Branch:
    """Return the path of the late rows that an operator drops."""
    own = stored_columns([Column(f.name, f.type) for f in node.operator.late_columns(node.index)])
    items = [f"{c.name} AS {name}" for c, name in own]
    rows = Select(f"SELECT {', '.join([*items, TIME, WATERMARK])} FROM _input")
    output = LATE if isinstance(node.operator, Windowed) else late_output(node.index)
    return Branch(as_stateful(node.operator), rows, weighted=False, are_never_late=False, output=output)


def _emitted(node: Stateful) -> list[Branch]:
    """Return the paths of an operator's rows: two if it marks late rows, one for rows on time and one for late rows; else one."""
    if not node.marks_late_rows:
        return [Branch(node, _INPUT, weighted=node.is_changelog)]
    own = f"SELECT * EXCLUDE ({LATE_RESULT.name}) FROM _input WHERE"
    both = ((True, Select(f"{own} NOT {LATE_RESULT.name}")), (False, Select(f"{own} {LATE_RESULT.name}")))
    return [Branch(node, rows, weighted=False, are_never_late=never_late) for never_late, rows in both]


def _in_one(paths: list[Branch]) -> list[Branch]:
    """Combine the paths from one leaf, if there are many paths, so that the rows of the leaf are computed once."""
    if len(paths) <= _MANY:
        return paths
    groups: dict[tuple[object, ...], list[Branch]] = {}
    for number, branch in enumerate(paths):
        alone = number if branch.lookups or branch.ordered else None
        groups.setdefault(
            (id(branch.leaf), branch.weighted, branch.timed, branch.never_late, branch.output, alone), []
        ).append(branch)
    return [_united(group) if len(group) > 1 else group[0] for group in groups.values()]


def _united(group: list[Branch]) -> Branch:
    common = dict(part for branch in group for part in branch.common)
    rows = Select(" UNION ALL BY NAME ".join(f"({branch.sql})" for branch in group))
    name = f"_union_{hashlib.sha256(rows.encode()).hexdigest()[:16]}"
    return replace(group[0], sql=Select(f"SELECT * FROM {name}"), common=(*common.items(), (name, rows)))


def _looked_up(node: LookupJoin, branch: Branch) -> Branch:
    """Return a path with a lookup join above it."""
    number = len(branch.lookups)
    names = [f"{INTERNAL}key_{i}" for i in range(len(node.keys))]
    key_items = ", ".join(f"{key.sql} AS {name}" for name, (key, _) in zip(names, node.keys, strict=True))
    lookup = Lookup(
        node.table,
        Select(f"SELECT *, {key_items} FROM ({branch.query})"),
        tuple((name, column) for name, (_, column) in zip(names, node.keys, strict=True)),
        node.span,
    )
    looked = [(f"{INTERNAL}of{name}", column) for name, column in lookup.keys]
    items = [f"{quote_name(column)} AS {quote_name(f.name)}" for column, f in node.columns]
    items += [f"{quote_name(column)} AS {name}" for name, column in looked]
    columns = ", ".join(
        quote_name(c.name) if c.expression is None else f"{c.expression} AS {quote_name(c.name)}"
        for c in node.table.visible
    )
    table_rows = f"(SELECT {', '.join(items)} FROM (SELECT {columns} FROM _found_{number}))"
    on = " AND ".join(f"_before.{a} = _found.{b}" for a, (b, _) in zip(names, looked, strict=True))
    on += f" AND ({node.condition.sql})" if node.condition else ""
    shown = f"_before.* EXCLUDE ({', '.join(names)}), _found.* EXCLUDE ({', '.join(n for n, _ in looked)})"
    how = "LEFT JOIN" if node.kind == "left" else "JOIN"
    sql = Select(f"SELECT {shown} FROM _before_{number} _before {how} {table_rows} _found ON {on}")
    return replace(branch, sql=sql, lookups=(*branch.lookups, lookup), common=())


def _renamed(node: Node, target: Schema, timed: bool) -> list[Branch]:
    names = [(own.name, field.name) for own, field in zip(node.schema, target, strict=True)]
    items = ", ".join(f"{quote_name(own)} AS {quote_name(name)}" for own, name in names)
    return [branch.select(Items(items)) for branch in branches(node, timed=timed)]
