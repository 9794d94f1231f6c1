"""The logical plan of a job as one query of DuckDB: each node is a common table expression over those below it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from sqlstream.duck.sql import FALSE, TRUE, Condition, Relation, Relations, Select, quote_name, quoted, union_all
from sqlstream.logical.plan.expressions import Item
from sqlstream.logical.plan.graph import rebuilt, walk
from sqlstream.logical.plan.late_rows import LateRows
from sqlstream.logical.plan.lookups import LookupJoin
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import AnyTimeWindows, as_any_node
from sqlstream.logical.plan.process import Process, SideOutputRead
from sqlstream.logical.plan.relational import Expand, Filter, Lateral, Projection, Union
from sqlstream.logical.plan.rules import push_rank_limit
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.tables import ResultSink, Scan
from sqlstream.logical.plan.windows import SessionWindow, TimeWindows
from sqlstream.physical.batch import joins, windows
from sqlstream.physical.batch.calls import deterministic
from sqlstream.physical.batch.rows import (
    AT,
    BATCH,
    READ,
    STANDS,
    TIMES,
    UNTIMED,
    WATERMARK,
    BatchRows,
    CannotVerify,
    StreamRules,
)
from sqlstream.physical.families.registry import operator_plan
from sqlstream.physical.lateral import with_made_rows
from sqlstream.units import END_OF_INPUT, NO_TIME, Duration, EventTime


@dataclass(frozen=True, slots=True)
class FunctionInput:
    """An input of a process function: its rows; with `is_read` they have the columns READ."""

    sql: Select
    is_read: bool


@dataclass(frozen=True, slots=True)
class Inputs:
    """The relations that a batch query reads.

    `read` returns the rows of a scan; with `is_read` they have the columns READ and UNTIMED. `looked_up` returns a lookup table.
    `processed` runs a process function over its inputs, and returns its outputs, by name; if it is None, a query with a process
    function raises CannotVerify. `sessions` returns the rows of a SELECT, partitioned by keys, that were not late for their
    session, with its bounds (see `jobs/verification/sessions`); it is not None with `is_read`. `watermark` returns, as SQL over a
    row with the columns READ, the watermark of an operator before the batch of that row. `reached` returns the watermark of an
    operator at the verified version. Neither is reduced by the operator's delay.
    """

    read: Callable[[Scan], Relation]
    looked_up: Callable[[LookupJoin], Relation]
    is_read: bool = False
    processed: Callable[[Process, Sequence[FunctionInput], StreamRules], Relations] | None = None
    sessions: Callable[[Select, Sequence[str]], Relation] | None = None
    watermark: Callable[[Node], str] = lambda node: WATERMARK.name
    reached: Callable[[Node], EventTime | None] = lambda node: None


# Reads the tables under their own names.
TABLES = Inputs(lambda scan: quoted(scan.table.name), lambda node: quoted(node.table.name))


class BatchQuery:
    """Builds the batch query of a table's sinks. Its methods raise CannotVerify for a node that has no batch answer.

    Rows of tables keep the columns READ up to the first stateful operator, which leaves out late rows if `corrections` say so.
    """

    def __init__(self, corrections: StreamRules | None = None, inputs: Inputs = TABLES):
        self.corrections = corrections or StreamRules()
        self._inputs = inputs
        self._parts: dict[str, Select] = {}
        self._by_node: dict[int, tuple[Node, BatchRows]] = {}
        self._emitted: dict[int, tuple[Node, Relations]] = {}
        # By the id of a plan: the plan, and the same with the limits of its ranks.
        self._limited: dict[int, tuple[Node, Node]] = {}
        # How long after their end sessions take rows, by the id of their node.
        self._lateness: dict[int, Duration] = {}

    @property
    def runs(self) -> bool:
        """Whether the query runs in a connection of the job, over the rows that it has read; else it is text for users."""
        return self._inputs.is_read

    def of(self, sinks: Sequence[ResultSink]) -> Select:
        """Return all rows that the INSERTs of a job write into one table, with the columns of the table."""
        selects = []
        for sink in sinks:
            if sink.limit is not None:
                raise CannotVerify("which rows a LIMIT takes depends on the order in which they come")
            below = self.settled(sink.input)
            pairs = zip(below.columns, sink.columns, strict=True)
            items = ", ".join(f"CAST({quote_name(own)} AS {to.type}) AS {quote_name(to.name)}" for own, to in pairs)
            selects.append(f"SELECT {items} FROM {below.sql}")
        return self.with_relations("\nUNION ALL\n".join(selects))

    @property
    def sessions(self) -> Callable[[Select, Sequence[str]], Relation] | None:
        """The function that gives rows the bounds of their sessions, see `Inputs`."""
        return self._inputs.sessions

    def with_relations(self, sql: str) -> Select:
        """Return a SELECT over the relations so far as a query of its own, with a WITH clause that defines them."""
        parts = ",\n".join(f"{quote_name(name)} AS (\n    {part}\n)" for name, part in self._parts.items())
        return Select(f"WITH {parts}\n{sql}")

    # -- relations

    def add(self, name: str, sql: str, columns: Sequence[str], *, is_read: bool = False) -> BatchRows:
        """Add a SELECT to the query as a relation; a number is appended to a name that is in use.

        `columns` are the columns of the SELECT, without READ, which it has if `is_read`.
        """
        number, unique_name = 1, name
        while unique_name.lower() in (other.lower() for other in self._parts):
            number += 1
            unique_name = f"{name}_{number}"
        self._parts[unique_name] = Select(sql)
        return BatchRows(unique_name, tuple(columns), is_read)

    def rows(self, node: Node) -> BatchRows:
        """Return the rows of a node, added to the query once; rows of tables have the columns READ. Raises CannotVerify."""
        if id(node) not in self._by_node:
            self._by_node[id(node)] = (node, self._rows(node))
        return self._by_node[id(node)][1]

    def watermark(self, node: Node) -> str:
        """Return the SQL of the watermark of an operator before the batch of a row with READ, in microseconds; NULL: none."""
        delay = node.delay_below
        return f"{self._inputs.watermark(node)}{f' - {delay}' if delay else ''}"

    def in_time(self, node: Node, time: str) -> Condition:
        """Return the condition that a row with READ was not late for an operator; `time` is SQL in microseconds."""
        watermark = self.watermark(node)
        return Condition(f"({watermark} IS NULL OR {time} > {watermark})")

    def is_over(self, node: Node, micros: str) -> Condition:
        """Return the condition that the watermark of an operator has reached a time; `micros` is its SQL, in microseconds.

        The condition is `true` without the rule `due`.
        """
        watermark = self._inputs.reached(node)
        if not self.corrections.due or watermark == END_OF_INPUT:
            return TRUE
        return FALSE if watermark is None else Condition(f"{micros} <= {watermark - node.delay_below}")

    def settled(self, node: Node, time: str | None = None, above: Node | None = None) -> BatchRows:
        """Return the rows of a node as the operator `above` sees them: repeated by their weights, without late rows and READ.

        A row is late when the operator's watermark has reached `time`, SQL in microseconds; None: no row can be late. Raises
        CannotVerify if the batch of a row that may be late is not known.
        """
        if time is not None:
            node = self.with_changes(node)
        below = self.rows(node)
        if time is not None and self.corrections.late and not below.is_read and _is_corrected(node):
            raise CannotVerify("a window reads results that are corrected later, of which some may be late", node.span)
        if time is not None and self.corrections.late and _emits_late(node):
            raise CannotVerify(
                "an operator reads what a process function without ORDER BY emits, of which some may be late", node.span
            )
        if not below.is_read:
            return below
        in_time = None
        if time is not None and self.corrections.late:
            assert above is not None
            in_time = self.in_time(above, time)
        return self.consolidated(node, below, in_time)

    def with_changes(self, node: Node) -> Node:
        """Return the plan of a node whose ranks emit changes batch by batch, if late rows are left out; else the node itself.

        An operator above that drops late rows must see the changes as they came. Only a rank of which the first row is read can
        emit them. Raises CannotVerify for other ranks.
        """
        ranked = any(origin.changes_are_timed and not origin.is_table for origin in _origins(node))
        if not (self.corrections.late and ranked):
            return node
        if id(node) not in self._limited:
            self._limited[id(node)] = (node, rebuilt(node, push_rank_limit))
        limited = self._limited[id(node)][1]
        if not self.rows(limited).is_read:
            raise CannotVerify("a window reads ranks, whose rows may be late", node.span)
        return limited

    def consolidated(self, node: Node, below: BatchRows, condition: Condition | None = None) -> BatchRows:
        """Return the rows that meet a condition, which may read READ: each row repeated by its weight, without READ.

        `below` are the rows of `node`, which tells whether weights can differ from 1.
        """
        where = f" WHERE {condition}" if condition is not None else ""
        if not _has_times(node):
            sql = f"SELECT {below.listed} FROM {below.sql}{where}"
        else:
            times = f"CAST(sum({TIMES.name}) AS BIGINT) AS {TIMES.name}"
            summed = f"SELECT {below.listed}, {times} FROM {below.sql}{where} GROUP BY {below.listed}"
            sql = f"SELECT {below.listed} FROM ({summed}), range({TIMES.name})"
        return self.add(f"{below.name}_rows", sql, below.columns)

    def _rows(self, node: Node) -> BatchRows:
        node = as_any_node(node)
        deterministic(e for e in node.expressions if not (isinstance(node, Projection) and e.is_now))
        match node:
            case Scan():
                return self._scan(node)
            case Filter() | Projection() | Expand() | Lateral() | TimeWindows() | Union():
                return self._stateless(node)
            case LookupJoin():
                return joins.lookup(self, node, self._inputs.looked_up(node))
            case SideOutputRead():
                return self.output(node.process, node.name, node)
            case LateRows():
                raise CannotVerify("a query that reads late rows has no batch form", node.span)
            case ResultSink():
                raise TypeError("a sink has no rows")
            case _:
                return operator_plan(node).batch(self)

    # -- stateless nodes

    def _scan(self, scan: Scan) -> BatchRows:
        columns = [f.name for f in scan.schema]
        listed = ", ".join(map(quote_name, columns))
        if not self._inputs.is_read:
            return self.add(f"read_{scan.alias}", f"SELECT {listed} FROM {self._inputs.read(scan)}", columns)
        hidden = ", ".join(c.name for c in READ)
        timed = f" WHERE NOT {UNTIMED.name}" if self.corrections.untimed else ""
        sql = f"SELECT {listed}, {hidden} FROM {self._inputs.read(scan)}{timed}"
        return self.add(f"read_{scan.alias}", sql, columns, is_read=True)

    def scanned(self, scan: Scan) -> Relation | None:
        """Return the rows of a scan with READ and UNTIMED; None if the query reads the tables themselves."""
        return self._inputs.read(scan) if self._inputs.is_read else None

    def _stateless(self, node: Filter | Projection | Expand | Lateral | AnyTimeWindows | Union) -> BatchRows:
        columns = [f.name for f in node.schema]
        if isinstance(node, Union):
            return self._union(node)
        below = self.rows(node.input)
        match node:
            case Filter():
                sql = f"SELECT {below.listed}{below.hidden} FROM {below.sql} WHERE {node.predicate.sql}"
                return self.add(f"{below.name}_where", sql, columns, is_read=below.is_read)
            case Projection():
                items = ", ".join(f"{_value(i, below)} AS {quote_name(i.name)}" for i in node.items)
                return self.add(
                    f"{below.name}_select",
                    f"SELECT {items}{below.hidden} FROM {below.sql}",
                    columns,
                    is_read=below.is_read,
                )
            case Expand():
                number = f"unnest([{', '.join(map(str, node.numbers))}]) AS {quote_name(node.column)}"
                sql = f"SELECT {below.listed}, {number}{below.hidden} FROM {below.sql}"
                return self.add("grouping_sets", sql, columns, is_read=below.is_read)
            case Lateral():
                listed = ", ".join(map(quote_name, columns))
                lateral_rows = with_made_rows(node, Select(f"SELECT * FROM {below.sql}"))
                sql = f"SELECT {listed}{below.hidden} FROM ({lateral_rows})"
                return self.add(f"{below.name}_lateral", sql, columns, is_read=below.is_read)
            case TimeWindows():
                sql = windows.in_time_windows(node, below)
                return self.add(node.kind.lower(), sql, columns, is_read=below.is_read)
            case _:
                assert_never(node)

    def _union(self, node: Union) -> BatchRows:
        columns = [f.name for f in node.schema]
        inputs = [self.rows(below) for below in node.inputs]
        is_read = any(below.is_read for below in inputs)
        selects = []
        for below in inputs:
            pairs = zip(below.columns, columns, strict=True)
            items = ", ".join(f"{quote_name(own)} AS {quote_name(name)}" for own, name in pairs)
            hidden = below.hidden
            if is_read and not below.is_read:
                # Rows that an operator has emitted are never late.
                nulls = "".join(f", NULL AS {c.name}" for c in (WATERMARK, BATCH, AT))
                hidden = f"{nulls}, 1 AS {TIMES.name}, 0 AS {STANDS.name}"
            selects.append(Select(f"SELECT {items}{hidden} FROM {below.sql}"))
        return self.add("union_all", union_all(selects), columns, is_read=is_read)

    # -- code of Python

    def output(self, process: Process, name: str, node: Node) -> BatchRows:
        """Return the rows of an output of a process function, with the columns of `node`; the function runs once, over all rows.

        An empty `name` is its result. Raises CannotVerify if the query cannot run it.
        """
        if self._inputs.processed is None:
            raise CannotVerify(
                f"{process.label} is code of Python, which has no batch form",
                process.span,
                hint="sqlstream verify runs it anew over all that the job has read.",
            )
        if id(process) not in self._emitted:
            inputs = [self._function_input(process, index) for index in range(len(process.inputs))]
            self._emitted[id(process)] = (process, self._inputs.processed(process, inputs, self.corrections))
        columns = [f.name for f in node.schema]
        emitted = self._emitted[id(process)][1][name]
        sql = f"SELECT {', '.join(map(quote_name, columns))} FROM {emitted}"
        return self.add(process.name or process.function.name, sql, columns)

    def _function_input(self, node: Process, index: int) -> FunctionInput:
        """Return the rows of an input of a process function; late rows are left out if the input has an ORDER BY."""
        below, read = node.inputs[index], node.reads[index]
        if below.is_changelog:
            raise CannotVerify(f"{node.label} gets rows that are taken back, which a batch does not have", node.span)
        rows = self.rows(below)
        where = ""
        if read.time is not None and rows.is_read:
            # User's code relies on it that a row has a time.
            where = f" WHERE isfinite({quote_name(read.time)})"
            if read.order and self.corrections.late:
                # The watermark has passed a row when it is greater than the row's time.
                until = f"{windows.micros_of(below, read.time)} + 1"
                where += f" AND {self.in_time(node, until)}"
        selected = f"SELECT {rows.listed}{rows.hidden} FROM {rows.sql}{where}"
        return FunctionInput(self.with_relations(selected), rows.is_read)

    # -- sessions

    def take_late(self, node: SessionWindow, lateness: Duration) -> None:
        """Let sessions take rows until the watermark has passed their end by `lateness`."""
        self._lateness[id(node)] = lateness

    def lateness_of(self, node: SessionWindow) -> Duration:
        """Return how long after their end sessions take rows."""
        return self._lateness.get(id(node), NO_TIME)


def _value(item: Item, below: BatchRows) -> str:
    """Return the SQL of an item; the current time is the time of the batch in which the row was read."""
    expression = item.expression
    if not expression.is_now:
        return expression.sql
    if not below.is_read:
        raise CannotVerify("an expression depends on the time of the batch", expression.span)
    return f"CAST(make_timestamptz({AT.name}) AS {expression.type})"


def _is_corrected(node: Node) -> bool:
    """Return whether rows of a node are window results that late or early rows correct."""
    return any(isinstance(origin, StatefulNode) and origin.corrects for origin in _origins(node))


def _emits_late(node: Node) -> bool:
    """Return whether an operator below emits rows whose time the watermark has passed, which an operator above drops."""
    return any(isinstance(below, StatefulNode) and below.emits_late for below in walk(node))


def _has_times(node: Node) -> bool:
    """Return whether rows of a node come from a table of changes or from a rank, so that they may have weights."""
    return any(origin.changes_are_timed for origin in _origins(node))


def _origins(node: Node) -> Iterator[Node]:
    """Yield all nodes that make the rows of a node a changelog, in every input of a union or a join."""
    seen: set[int] = set()
    pending = [node]
    while pending:
        below = pending.pop()
        if id(below) in seen:
            continue
        seen.add(id(below))
        if below.changelog_origin is below:
            yield below
        elif below.is_changelog:
            pending += below.children
