"""From what to compute to how: cuts a logical plan into fragments at every stateful operator."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from sqlstream.catalog import Column, Table, Watermark
from sqlstream.connectors.formats.changelogs import source_table
from sqlstream.duck.clock import NOW, reached
from sqlstream.duck.internal_columns import CHANGE, INTERNAL, PLACE
from sqlstream.duck.sql import Rows, quote_name, quote_text, unquoted
from sqlstream.errors import BindError
from sqlstream.logical.plan.aggregates import Aggregate, WindowAggregate
from sqlstream.logical.plan.expressions import Field, Schema
from sqlstream.logical.plan.graph import once, walk
from sqlstream.logical.plan.joins import Joining, LookupJoin
from sqlstream.logical.plan.late_rows import MARK, TIME, LateRows, row_columns
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import Stateful, Windowed, closed
from sqlstream.logical.plan.over import Over, Sort
from sqlstream.logical.plan.process import Process, SideOutputRead
from sqlstream.logical.plan.ranks import Rank, WindowRank
from sqlstream.logical.plan.relational import Expand, Filter, Lateral, Projection, SetOperation, Union
from sqlstream.logical.plan.tables import Normalize, ResultSink, Scan
from sqlstream.logical.plan.windows import CountWindows, SessionWindow, TimeWindows
from sqlstream.names import check_name
from sqlstream.operators.groups import stored_columns
from sqlstream.operators.operator import Operator, Port
from sqlstream.operators.process.emitted import LATE_RESULT
from sqlstream.operators.windows.late_rows import LATE
from sqlstream.physical.lateral import with_made_rows
from sqlstream.physical.plan import (
    Exchange,
    Fragment,
    Lookup,
    PhysicalPlan,
    ScanStage,
    SinkPlan,
    StatefulStage,
    StateView,
)
from sqlstream.physical.refusals import refuse
from sqlstream.physical.row_order import Ordered, in_order, keeps_last
from sqlstream.physical.scans import keeping_malformed, numbered, scanned
from sqlstream.physical.stateful import (
    arriving_at,
    operator_of,
    own_tables,
    process_late_views,
    process_views,
    side_views,
    state_bound,
    state_view,
)
from sqlstream.physical.windows import EVENT_TIME, at_their_time, event_time, in_windows, made_above
from sqlstream.state.zsets import WEIGHT, last_rows, summed

# The paths that a union can have before those from one leaf are made one.
_MANY = 16


@dataclass(frozen=True, slots=True)
class Branch:
    """A stateless path from one leaf (a scan or a stateful node) upwards: a SELECT over `_input`.

    With `weighted`, its rows have weights, with `timed` the event time by which they came into windows, with `placed` what they
    change, and their place in the source: in columns after those of the schema. Where rows are looked up on the way, it is a
    SELECT over what was found.
    """

    leaf: Scan | Stateful
    sql: str
    weighted: bool
    timed: bool = False
    placed: bool = False
    lookups: tuple[Lookup, ...] = ()
    # Whether its rows are on time, where those of the leaf are on several paths for that.
    are_on_time: bool | None = None
    # Which of the leaf's side outputs it is over, empty for its result.
    output: str = ""
    # What several parts of the SELECT read, by name: each may read those before it.
    common: tuple[tuple[str, str], ...] = ()

    @property
    def on_time(self) -> bool:
        """Whether none of its rows is late."""
        return self.leaf.on_time if self.are_on_time is None else self.are_on_time

    @property
    def query(self) -> str:
        """The whole SELECT over `_input`."""
        parts = ", ".join(f"{name} AS MATERIALIZED ({sql})" for name, sql in self.common)
        return f"SELECT * FROM (WITH {parts} {self.sql})" if parts else self.sql

    def select(self, items: str) -> Branch:
        """Return the path with a projection above it; weights and event times stay."""
        own = [name for name, is_there in ((WEIGHT, self.weighted), (EVENT_TIME, self.timed)) if is_there]
        own += [c.name for c in (CHANGE, *PLACE)] if self.placed else []
        added = "".join(f", {name}" for name in own)
        return replace(self, sql=f"SELECT {items}{added} FROM ({self.sql})")

    def over(self, select: Callable[[str], str]) -> Branch:
        return replace(self, sql=select(self.sql))

    def at(self, time: str) -> Branch:
        """Return the path with an event time."""
        return replace(self, sql=f"SELECT *, {time} AS {EVENT_TIME} FROM ({self.sql})", timed=True)

    def with_weight(self) -> Branch:
        """Return the path with weights, also where every row is added once."""
        if self.weighted:
            return self
        return replace(self, sql=f"SELECT *, CAST(1 AS BIGINT) AS {WEIGHT} FROM ({self.sql})", weighted=True)


def plan(sinks: Sequence[ResultSink]) -> PhysicalPlan:
    """Return the physical plan of a job: what several sinks need in common is read and computed once.

    Raises UnsupportedError for an aggregate that cannot run incrementally, and for a function that differs on replay
    where state depends on it.
    """
    planner = _Planner([n.operator for sink in sinks for n in walk(sink) if isinstance(n, LateRows)])
    refuse(sinks)
    found: dict[str, SinkPlan] = {}
    for sink in sinks:
        name = sink.table.name.lower()
        changing = {s.table.name.lower() for s in sinks if s.input.is_changelog}
        ordered = in_order(sink) if keeps_last(sink) else None
        order = ordered.columns if isinstance(ordered, Ordered) else ()
        found.setdefault(name, _sink(sink, sinks, name in changing, order))
        number = list(found).index(name)
        pairs = zip(sink.input.schema, sink.columns, strict=True)
        positions = ", ".join(f"{quote_name(own.name)} AS {quote_name(target.name)}" for own, target in pairs)
        casts = ", ".join(f"{assigned(c, sink.table)} AS {quote_name(c.name)}" for c in sink.columns)
        if order:
            positions += "".join(f", {c.name}" for c in order)
            placed = "".join(f", {c.name}" for c in order)
            rows = f"(SELECT {casts}{placed}, CAST(1 AS BIGINT) AS {WEIGHT} FROM _rows)"
        for branch in branches(ordered.node if isinstance(ordered, Ordered) else sink.input):
            stored = last_rows(sink.table.primary_key, order, rows) if order else f"SELECT {casts} FROM _rows"
            if name in changing:
                # Changes that cancel each other once columns are left out, or values cast, are none.
                branch = branch.with_weight()
                stored = summed(
                    [Column(c.name, c.type) for c in sink.columns], f"(SELECT {casts}, {WEIGHT} FROM _rows)"
                )
            planner.add(
                branch,
                Fragment(
                    branch.select(positions).query, (("rows", stored),), None, number, branch.lookups, branch.output
                ),
            )
    scans = keeping_malformed([replace(scan, fragments=tuple(f)) for _, scan, f in planner.scans], found)
    stages = tuple(replace(stage, fragments=tuple(f)) for _, stage, f in planner.stages)
    return PhysicalPlan(scans, stages, tuple(found.values()), any(map(_asks_watermark, sinks)))


def _asks_watermark(sink: ResultSink) -> bool:
    """Tell whether something on the way to a sink depends on the watermark before a batch: late rows do, too."""
    for node in walk(sink):
        if isinstance(node, Scan) and any(c.reads_watermark for c in node.table.columns):
            return True
        if isinstance(node, LateRows) or (isinstance(node, Windowed) and node.late_rows is not None):
            return True
        if any(e.reads.watermark for e in node.expressions):
            return True
    return False


def _sink(sink: ResultSink, sinks: Sequence[ResultSink], changing: bool, order: tuple[Column, ...]) -> SinkPlan:
    columns, keys = tuple((c.name, c.type) for c in sink.columns), keys_of(sink)
    alone = [s.table.name.lower() for s in sinks].count(sink.table.name.lower()) == 1
    return SinkPlan(sink.table, columns, sink.limit, changing or bool(order), keys if alone else (), order)


def assigned(field: Field, table: Table) -> str:
    """Return the expression that stores a value in a column of a sink: converted, and not NULL where it must not be."""
    value = f"CAST({quote_name(field.name)} AS {field.type})"
    if not any(c.name == field.name and c.not_null for c in table.columns):
        return value
    message = f'column "{field.name}" of table "{table.name}" is NOT NULL, but the query gives NULL'
    return f"CASE WHEN {quote_name(field.name)} IS NULL THEN error({quote_text(message)}) ELSE {value} END"


def keys_of(sink: ResultSink) -> tuple[str, ...]:
    """Return columns of a sink that tell its rows apart, of its PRIMARY KEY if there are such; none where nothing is known."""
    pairs = {own.name: target.name for own, target in zip(sink.input.schema, sink.columns, strict=True)}
    found = [tuple(target for own, target in pairs.items() if own in names) for names in sink.input.unique_keys]
    primary = set(sink.table.primary_key)
    return next((f for f in found if set(f) <= primary), next(iter(found), ()))


def branches(node: Node, made_above: Node | None = None, *, timed: bool = False) -> list[Branch]:
    """Return the stateless paths that end in this node; a union has one for each of its inputs.

    The windows of `made_above` are left to the operator that the paths lead to. With `timed`, rows that came into windows on the
    way have their event time.
    """
    return _branches(node, made_above, timed)


@once
def _branches(node: Node, made_above: Node | None, timed: bool) -> list[Branch]:
    def below(child: Node) -> list[Branch]:
        return _branches(child, made_above, timed)

    node = closed(node)
    match node:
        case TimeWindows() | SessionWindow() if node is made_above:
            found = [b.at(event_time(node)) if timed else b for b in branches(node.input)]
            return [b.over(lambda rows: at_their_time(node, rows)) for b in found]
        case Scan() if node.table.has_changes and node.table.primary_key:
            return [Branch(node, "SELECT * FROM _input", weighted=False, placed=True)]
        case Filter():
            return [
                b.over(lambda rows: f"SELECT * FROM ({rows}) WHERE {node.predicate.sql}") for b in below(node.input)
            ]
        case Projection():
            items = ", ".join(f"{i.expression.sql} AS {quote_name(i.name)}" for i in node.items)
            return [b.select(items) for b in below(node.input)]
        case TimeWindows():
            found = [b.at(event_time(node)) if timed else b for b in branches(node.input)]
            return [b.over(lambda rows: in_windows(node, rows)) for b in found]
        case Expand():
            numbers = ", ".join(map(str, node.numbers))
            number = f"unnest([{numbers}]) AS {quote_name(node.column)}"
            return [b.over(lambda rows: f"SELECT *, {number} FROM ({rows})") for b in below(node.input)]
        case Lateral():
            return [b.over(lambda rows: with_made_rows(node, rows)) for b in below(node.input)]
        case Union():
            found = [branch for child in node.inputs for branch in _renamed(child, node.schema, timed)]
            return _in_one([b.with_weight() for b in found] if node.is_changelog else found)
        case LookupJoin():
            return [_looked_up(node, b) for b in below(node.input)]
        case LateRows():
            return [_of_late_rows(node)]
        case Process():
            return _emitted(node)
        case SideOutputRead():
            return [replace(branch, output=node.name) for branch in _emitted(node.process)]
        case ResultSink():
            raise TypeError("a sink is not part of a path")
        case _:
            # What is left is a leaf: `Branch` takes nothing but a scan or a stateful node.
            return [Branch(node, "SELECT * FROM _input", weighted=node.is_changelog)]


def _of_late_rows(node: LateRows) -> Branch:
    """Return the path of the rows that an operator drops."""
    own = stored_columns([Column(f.name, f.type) for f in row_columns(node.operator)])
    items = [f"{c.name} AS {name}" for c, name in own]
    rows = f"SELECT {', '.join([*items, TIME, MARK])} FROM _input"
    return Branch(node.operator, rows, weighted=False, are_on_time=False, output=LATE)


def _emitted(node: Process) -> list[Branch]:
    """Return the paths of an output: where rows have a time, one of those that are on time, and one of those that are late."""
    if not node.time_type:
        return [Branch(node, "SELECT * FROM _input", weighted=node.is_changelog)]
    own = f"SELECT * EXCLUDE ({LATE_RESULT.name}) FROM _input WHERE"
    both = ((True, f"NOT {LATE_RESULT.name}"), (False, LATE_RESULT.name))
    return [Branch(node, f"{own} {where}", weighted=False, are_on_time=on_time) for on_time, where in both]


def _in_one(found: list[Branch]) -> list[Branch]:
    """Return many paths with those from one leaf made one: what they have in common is then computed once."""
    if len(found) <= _MANY:
        return found
    groups: dict[tuple[object, ...], list[Branch]] = {}
    for number, branch in enumerate(found):
        alone = number if branch.lookups or branch.placed else None
        groups.setdefault(
            (id(branch.leaf), branch.weighted, branch.timed, branch.on_time, branch.output, alone), []
        ).append(branch)
    return [_united(group) if len(group) > 1 else group[0] for group in groups.values()]


def _united(group: list[Branch]) -> Branch:
    common = dict(part for branch in group for part in branch.common)
    rows = " UNION ALL BY NAME ".join(f"({branch.sql})" for branch in group)
    name = f"_union_{hashlib.sha256(rows.encode()).hexdigest()[:16]}"
    return replace(group[0], sql=f"SELECT * FROM {name}", common=(*common.items(), (name, rows)))


def _looked_up(node: LookupJoin, branch: Branch) -> Branch:
    """Return a path with what is looked up for its rows."""
    number = len(branch.lookups)
    names = [f"{INTERNAL}key_{i}" for i in range(len(node.keys))]
    wanted = ", ".join(f"{key.sql} AS {name}" for name, (key, _) in zip(names, node.keys, strict=True))
    lookup = Lookup(
        node.table,
        f"SELECT *, {wanted} FROM ({branch.query})",
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
    found = f"(SELECT {', '.join(items)} FROM (SELECT {columns} FROM _found_{number}))"
    on = " AND ".join(f"_before.{a} = _found.{b}" for a, (b, _) in zip(names, looked, strict=True))
    on += f" AND ({node.condition.sql})" if node.condition else ""
    shown = f"_before.* EXCLUDE ({', '.join(names)}), _found.* EXCLUDE ({', '.join(n for n, _ in looked)})"
    how = "LEFT JOIN" if node.kind == "left" else "JOIN"
    sql = f"SELECT {shown} FROM _before_{number} _before {how} {found} _found ON {on}"
    return replace(branch, sql=sql, lookups=(*branch.lookups, lookup), common=())


def _renamed(node: Node, target: Schema, timed: bool) -> list[Branch]:
    names = [(own.name, wanted.name) for own, wanted in zip(node.schema, target, strict=True)]
    items = ", ".join(f"{quote_name(own)} AS {quote_name(wanted)}" for own, wanted in names)
    return [branch.select(items) for branch in branches(node, timed=timed)]


def feeding(node: Stateful, operator: Operator) -> list[tuple[Branch, list[str]]]:
    """Return the stateless paths that lead to a stateful node, each with the parts of the operator that its rows make."""
    if isinstance(node, Joining):
        pairs = zip(node.inputs, operator.parts, strict=True)
        return [
            (branch.with_weight() if below.is_changelog and not branch.placed else branch, [part])
            for below, part in pairs
            for branch in branches(below)
        ]
    if isinstance(node, Process):
        return [
            (branch.with_weight() if below.is_changelog else branch, [part])
            for below, part in zip(node.inputs, operator.parts, strict=True)
            for branch in branches(arriving_at(node, below).node)
        ]
    timed = isinstance(node, WindowAggregate | WindowRank) and LATE in operator.parts
    found = []
    for branch in branches(node.input, made_above(node), timed=timed):
        # Only rows of a table can be late, and those that come into windows on their way.
        can_be_late = not branch.on_time and (branch.timed or isinstance(node, SessionWindow))
        found.append((branch, [part for part in operator.parts if part != LATE or can_be_late]))
    return found


class _Planner:
    """Collects scans and stages while walking down from the sinks; a stage is listed after everything that feeds it.

    Equal ones are one, with a fragment for each of those that want its rows.
    """

    def __init__(self, late: Sequence[Node]) -> None:
        # The operators whose late rows are read.
        self.late = late
        self.scans: list[tuple[Scan, ScanStage, list[Fragment]]] = []
        self.stages: list[tuple[Stateful, StatefulStage, list[Fragment]]] = []
        self.names: set[str] = set()

    def add(self, branch: Branch, fragment: Fragment) -> None:
        """Let the leaf of a path send its rows through a fragment."""
        self._leaf(branch.leaf).append(fragment)

    def _leaf(self, leaf: Scan | Stateful) -> list[Fragment]:
        """Return the fragments of a scan or a stage, which is planned when it is new."""
        if isinstance(leaf, Scan):
            for scan, _, fragments in self.scans:
                if (scan.table, scan.by_clock) == (leaf.table, leaf.by_clock):
                    return fragments
            self.scans.append((leaf, self._scan(leaf), []))
            return self.scans[-1][2]
        for node, _, fragments in self.stages:
            if node == leaf:
                return fragments
        self._stateful(leaf)
        return self.stages[-1][2]

    def _scan(self, scan: Scan) -> ScanStage:
        table, keyed = scan.table, bool(scan.table.primary_key)
        mark = table.watermark
        if scan.by_clock:
            # Without such a column there is nothing to tell of its newest time: the clock moves on all the same.
            time = next((c.name for c in table.columns if c.processing_time), None)
            mark = Watermark(time, quote_name(time)) if time else None
        check_name("a table in FROM", scan.alias, scan.span)
        return ScanStage(
            name=self._unique(scan.alias),
            table=source_table(table),
            columns=scanned(table),
            numbered=numbered(table),
            time_column=mark.column if mark else None,
            watermark=_shown(mark, table) if mark else NOW if scan.by_clock else None,
            fragments=(),
            by_clock=scan.by_clock,
            changes=("keyed" if keyed else "whole") if table.has_changes else None,
        )

    def _stateful(self, node: Stateful) -> None:
        operator = operator_of(node, emits_late=node in self.late)
        ports: list[Port] = []
        feeds = []
        for branch, wanted in feeding(node, operator):
            # No row is late by the batch's own time.
            by_clock = isinstance(branch.leaf, Scan) and branch.leaf.by_clock and isinstance(node, Joining)
            on_time = branch.on_time or by_clock
            parts = tuple((part, operator.parts[part]) for part in wanted)
            numbers = tuple((part, len(ports) + i) for i, part in enumerate(wanted))
            ports += [Port(part, on_time) for part, _ in parts]
            feeds.append((self._leaf(branch.leaf), branch, parts, numbers))
        # By now all that feed this stage have their places.
        place = len(self.stages)
        for fragments, branch, parts, numbers in feeds:
            exchange = Exchange(place, operator.hashed, numbers)
            fragments.append(Fragment(branch.query, parts, exchange, lookups=branch.lookups, output=branch.output))
        view = state_view(node, operator)
        name = self._unique(node.name or operator.kind, numbered=not node.name)
        check_name("an operator", name, node.span)
        stage = StatefulStage(
            name=name,
            operator=operator,
            ports=tuple(ports),
            fragments=(),
            key_columns=_key_columns(node),
            view=view,
            count_sql=operator.open_windows(own_tables(operator), reached(node.delay_below)),
            bound=state_bound(node),
            hash_columns=operator.hash_columns,
            time_column=None if node.changelog_origin is node and isinstance(node, Windowed) else node.time_attribute,
            unique=tuple(sorted(next(iter(node.unique_keys), ()))),
            more_views=self._more_views(node, operator, name),
            delay=node.delay_below,
            opening=_opening(operator, place, ports),
            fires_timers=_goes_by_clock(node),
            node=node,
        )
        self.stages.append((node, stage, []))

    def _more_views(self, node: Stateful, operator: Operator, name: str) -> tuple[StateView, ...]:
        """Return the views of the inputs of a join, and of the rows that an operator drops as late, if it keeps them."""
        if isinstance(node, Joining):
            views = side_views(node, operator)
            return tuple(StateView(self._unique(f"{name}_{alias}"), view) for alias, view in views)
        if isinstance(node, Process):
            views = process_views(operator)
            own = (StateView(self._unique(f"{name}_{part}"), view) for part, view in views)
            return (*own, *(self._late_rows(node, late, view) for late, view in process_late_views(operator, name)))
        late = operator.late_view(name)
        if late is None or not isinstance(node, Windowed) or node.late_rows is None:
            return ()
        return (self._late_rows(node, node.late_rows, late),)

    def _late_rows(self, node: Stateful, name: str, view: Rows) -> StateView:
        """Return the view of late rows under the name that the query gives it."""
        if name.lower() in self.names:
            message = f'LATE_ROWS: "{name}" is the name of something else in the job'
            raise BindError(message, node.span, hint="Take another.")
        self.names.add(name.lower())
        return StateView(name, view, "late rows, kept for the life of the job")

    def _unique(self, name: str, *, numbered: bool = False) -> str:
        number = 1
        candidate = f"{name}_1" if numbered else name
        while candidate.lower() in self.names:
            number += 1
            candidate = f"{name}_{number}"
        self.names.add(candidate.lower())
        return candidate


def _goes_by_clock(node: Stateful) -> bool:
    """Tell whether an operator may ask to be called at processing times."""
    match node:
        case WindowAggregate():
            return node.early is not None and node.early.by == "time"
        case Process():
            return node.function.has_timers
    return False


def _opening(operator: Operator, place: int, ports: Sequence[Port]) -> tuple[Fragment, ...]:
    """Return the fragments that make the rows with which an operator begins."""
    numbers = {port.part: number for number, port in enumerate(ports)}
    return tuple(
        Fragment("SELECT * FROM _input", ((part, sql),), Exchange(place, operator.hashed, ((part, numbers[part]),)))
        for part, sql in operator.opening.items()
    )


def _shown(mark: Watermark, table: Table) -> str:
    """Return a watermark's expression; an instant is, as for windows, the time that the session's zone shows."""
    kind = next(c.type for c in table.columns if c.name == mark.column)
    return f"CAST({mark.expression} AS TIMESTAMP)" if kind == "TIMESTAMP WITH TIME ZONE" else mark.expression


def _key_columns(node: Stateful) -> tuple[str, ...]:
    match node:
        case SessionWindow() | CountWindows():
            return node.keys
        case WindowAggregate() | Aggregate():
            return tuple(k.name for k in node.keys)
        case Sort():
            return ()
        case WindowRank() | Rank() | Over():
            return tuple(k.column or unquoted(k.sql) for k in node.keys)
        case Normalize():
            return node.keys
        case Joining():
            return tuple(k.column or unquoted(k.sql) for k in node.keys[0])
        case SetOperation():
            return tuple(f.name for f in node.schema)
        case Process():
            return node.key_names
        case _:
            assert_never(node)
