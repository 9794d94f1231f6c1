"""Plans as text: what each node does, the columns it emits, its time attribute, the state it keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import assert_never

from sqlstream.catalog import IDLE_TIMEOUT, Column, StateDeclaration
from sqlstream.logical.plan.aggregates import Aggregate, WindowAggregate
from sqlstream.logical.plan.expressions import Expression
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.joins import IntervalJoin, Joining, LookupJoin, TemporalJoin
from sqlstream.logical.plan.late_rows import LateRows
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import Joins, Stateful, closed
from sqlstream.logical.plan.over import Over, Sort
from sqlstream.logical.plan.process import Process, SideOutputRead
from sqlstream.logical.plan.ranks import Rank, WindowRank
from sqlstream.logical.plan.relational import Expand, Filter, Lateral, Projection, SetOperation, Union
from sqlstream.logical.plan.tables import Normalize, ResultSink, Scan
from sqlstream.logical.plan.windows import CountWindows, SessionWindow, TimeWindows
from sqlstream.secrets import planned
from sqlstream.units import Duration, duration

# A part of a plan with more lines than this is printed once.
_LONG = 20
_STEPS = {"HOP": "slide", "CUMULATE": "step"}


def logical_text(node: Node, *, schemas: bool = True) -> str:
    """Return a plan as an indented tree, the sink first. What is long, and below several nodes, is told once."""
    above = Counter(id(child) for n in walk(node) for child in n.children)
    several = {place for place, count in above.items() if count > 1}
    return "\n".join(_lines(node, 0, schemas, several, {}))


def _lines(node: Node, depth: int, schemas: bool, several: set[int], numbers: dict[int, int]) -> list[str]:
    pad = "  " * depth
    if id(node) in numbers:
        return [f"{pad}[{numbers[id(node)]}], as above"]
    lines = [f"{pad}{describe(node)}"]
    if schemas and not isinstance(node, ResultSink):
        time = node.time_attribute
        columns = ", ".join(f"{f}{' *' if f.name == time else ''}" for f in node.schema)
        lines.append(f"{pad}    -> {columns}{_changing(node)}")
    for child in node.children:
        lines += _lines(child, depth + 1, schemas, several, numbers)
    if id(node) in several and len(lines) > _LONG:
        numbers[id(node)] = len(numbers) + 1
        lines[0] += f" [{numbers[id(node)]}]"
    return lines


def _changing(node: Node) -> str:
    """Return what a changelog adds to a line: by which upsert key its rows are told apart."""
    if not node.is_changelog:
        return ""
    found = next(iter(node.unique_keys), None)
    return f" (changing{', key ' + ', '.join(sorted(found)) if found else ''})"


def describe(node: Node) -> str:
    """Return one line about a node."""
    node = closed(node)
    match node:
        case Scan() if node.table.is_values:
            return f"Values {node.table.options['rows']}"
        case Scan():
            table = node.table
            # How long a source may be silent can change while a job lives.
            options = ", ".join(f"{k}={v}" for k, v in sorted(planned(table.options).items()) if k != IDLE_TIMEOUT)
            mark = f" watermark {table.watermark.column} AS {table.watermark.expression}" if table.watermark else ""
            mark = " by clock" if node.by_clock else mark
            computed = [f"{c.name} AS {c.expression}" for c in table.columns if c.expression]
            more = f" computed {', '.join(computed)}" if computed else ""
            changes = " of changes" if table.has_changes else ""
            return f"Scan {table.name} ({options}){changes}{mark}{more}"
        case Filter():
            return f"Filter {node.predicate.sql}"
        case Projection():
            return f"Project {', '.join(f'{i.expression.sql} AS {i.name}' for i in node.items)}"
        case TimeWindows():
            offset = f" offset {duration(node.offset)}" if node.offset else ""
            zone = f" in {node.zone}" if node.zone else ""
            every = "" if node.kind == "TUMBLE" else f" {_STEPS[node.kind]} {duration(node.slide)}"
            return f"{node.kind.capitalize()} {node.time_column}{every} size {duration(node.size)}{offset}{zone}"
        case Expand():
            return f"Expand {node.column} {', '.join(map(str, node.numbers))}"
        case LookupJoin():
            by = ", ".join(f"{node.table.name}.{column} = {key.sql}" for key, column in node.keys)
            where = f" where {node.condition.sql}" if node.condition else ""
            return (
                f"LookupJoin {node.kind} {node.table.name} ({node.table.connector or 'warehouse table'}) by {by}{where}"
            )
        case Lateral():
            return f"Lateral{' outer' if node.outer else ''} {node.rows.sql}"
        case SideOutputRead():
            return f"SideOutput {node.name}"
        case LateRows():
            return f"LateRows{_quoted(node.input_name)}"
        case Union():
            return f"Union of {len(node.inputs)}"
        case ResultSink():
            columns = ", ".join(map(str, node.columns))
            limit = f" limit {node.limit}" if node.limit is not None else ""
            return f"Sink {node.table.name} ({node.table.connector or 'warehouse table'}){limit}: {columns}"
        case _:
            return _describe_operator(node)


def _describe_operator(node: Stateful) -> str:
    match node:
        case Normalize():
            return f"Normalize{_quoted(node.name)} by {', '.join(node.keys)}"
        case SessionWindow():
            keys = ", ".join(node.keys) or "no key"
            gap = node.gap.sql if isinstance(node.gap, Expression) else duration(node.gap)
            return f"Session{_quoted(node.name)} {node.time_column} by {keys} gap {gap}{_late(node)}"
        case CountWindows():
            every = "" if node.slide == node.size else f" slide {node.slide}"
            keys = ", ".join(node.keys) or "no key"
            return f"CountWindows{_quoted(node.name)} {node.time_column} by {keys}{every} size {node.size} rows"
        case WindowRank():
            keys = ", ".join(k.sql for k in node.keys) or "no key"
            limit = f" limit {node.limit}" if node.limit is not None else ""
            order = ", ".join(o.sql for o in node.order)
            ranked = f"{node.function} by {keys} per {node.window.end} order {order}{limit} AS {node.column}"
            return f"WindowRank{_quoted(node.name)} {ranked}{_late(node)}"
        case WindowAggregate():
            keys = ", ".join(f"{k.expression.sql} AS {k.name}" for k in node.keys) or "no key"
            calls = ", ".join(str(a) for a in node.aggregates) or "no aggregate"
            firing = f" lateness {duration(node.lateness)}" if node.lateness else ""
            if (early := node.early) is not None:
                clock = "event time" if early.by == "event" else "processing time"
                often = f"{early.every} rows" if early.by == "rows" else f"{duration(Duration(early.every))} of {clock}"
                firing += f" early every {often}"
            return f"WindowAggregate{_quoted(node.name)} by {keys} per {node.window.end}{firing}{_late(node)}: {calls}"
        case Aggregate():
            keys = ", ".join(f"{k.expression.sql} AS {k.name}" for k in node.keys) or "no key"
            retracts = node.input.is_changelog
            calls = ", ".join(a.retracting if retracts else str(a) for a in node.aggregates) or "no aggregate"
            return f"Aggregate{_quoted(node.name)} by {keys}: {calls}"
        case Rank():
            keys = ", ".join(k.sql for k in node.keys) or "no key"
            limit = f" limit {node.limit}" if node.limit is not None else ""
            order = ", ".join(o.sql for o in node.order)
            return f"Rank{_quoted(node.name)} {node.function} by {keys} order {order}{limit} AS {node.column}"
        case SetOperation():
            return f"{node.function.capitalize()}{'' if node.distinct else ' all'}{_quoted(node.name)} by {node.side}"
        case Over():
            keys = ", ".join(k.sql for k in node.keys) or "no key"
            order = ", ".join(o.sql for o in node.order)
            return f"Over{_quoted(node.name)} by {keys} order {order}: {', '.join(map(str, node.calls))}"
        case Sort():
            return f"Sort{_quoted(node.name)} {', '.join(o.sql for o in node.order)}"
        case Process():
            return _describe_process(node)
        case Joining():
            return _describe_join(node)
        case _:
            assert_never(node)


def _describe_process(node: Process) -> str:
    inputs = []
    for argument, read in zip(node.function.tables, node.reads, strict=True):
        columns = ", ".join(f"{i.expression.sql} AS {i.name}" for i in read.columns)
        by = "broadcast" if read.broadcast else f"by {', '.join(k.sql for k in read.keys) or 'no key'}"
        order = f" order {', '.join(o.sql for o in read.order)}" if read.order else ""
        at = f" at {read.time}" if read.time and not order else ""
        inputs.append(f"{argument.name} {by}{at}{order} ({columns})")
    given = (f"{s.name} => {a.sql}" for s, a in zip(node.function.scalars, node.arguments, strict=True))
    states = "".join(map(partial(_describe_state, node), node.function.states))
    results = _columns(node.function.outputs)
    sides = "".join(f"; side output {s.name} ({_columns(s.columns)})" for s in node.function.side_outputs)
    call = f"{node.function.name}({', '.join([*inputs, *given])})"
    how = f" vectorized by {node.function.vectorized}" if node.function.vectorized else ""
    how += f" ({node.function.changelog_mode})" if node.function.changelog_mode else ""
    return f"Process{_quoted(node.name)}{how} {call} emits {results}{sides}{states}{_late(node)}"


def _describe_state(node: Process, state: StateDeclaration) -> str:
    kind = f"broadcast {state.kind}" if state.broadcast else state.kind
    entry = f"{state.key_type} to " if state.key_type else ""
    return f"; {kind} {state.name} {entry}{state.type}{' that expires' if node.ttl_of(state) else ''}"


def _columns(columns: Iterable[Column]) -> str:
    return ", ".join(f"{c.name} {c.type}" for c in columns)


def _describe_join(node: Joins) -> str:
    pairs = [" = ".join(k.sql for k in pair) for pair in zip(*node.keys, strict=True)]
    by = ", ".join(pairs) or "no key"
    where = f" where {node.condition.sql}" if node.condition else ""
    what, within = "Join", ""
    if isinstance(node, IntervalJoin) and node.windowed:
        what = "WindowJoin"
    elif isinstance(node, IntervalJoin):
        a, b = node.times
        what, within = "IntervalJoin", f" {b} from {_shifted(a, Duration(-node.before))} to {_shifted(a, node.after)}"
    elif isinstance(node, TemporalJoin):
        what, within = "TemporalJoin", f" {node.times[1]} as of {node.times[0]}"
    return f"{what}{_quoted(node.name)} {node.kind} by {by}{within}{where}"


def _shifted(column: str, by: Duration) -> str:
    return f"{column} {'-' if by < 0 else '+'} {duration(Duration(abs(by)))}" if by else column


def _late(node: SessionWindow | WindowRank | WindowAggregate | Process) -> str:
    return f" late rows in {node.late_rows}" if node.late_rows else ""


def _quoted(name: str) -> str:
    return f' "{name}"' if name else ""
