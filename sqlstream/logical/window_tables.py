"""Binding of window table functions: TUMBLE, HOP, CUMULATE and SESSION over any relation."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlglot import exp

from sqlstream.errors import BindError, Source, Span, UnsupportedError, missing
from sqlstream.logical.intervals import microseconds
from sqlstream.logical.judge import Judge
from sqlstream.logical.nodes import (
    BOUNDS,
    TIMES,
    Node,
    Scan,
    Session,
    Union,
    WindowColumns,
    Windows,
    by_clock,
    processing_times,
    quote,
    schema,
    time_attribute,
)
from sqlstream.sql.dialect import WindowTVF
from sqlstream.sql.spans import span_of


def tells_windows_apart(node: Node, window: WindowColumns, named: Collection[str]) -> bool:
    """Tell whether some of a node's bounds, by their SQL, say which window a row is in."""
    ends = [quote(c) for c in (window.end, window.time) if c is not None]
    if any(name in named for name in ends):
        return True
    # Several cumulative windows begin at one time.
    return window.start is not None and quote(window.start) in named and not _is_cumulative(node)


def _is_cumulative(node: Node) -> bool:
    match node:
        case Windows():
            return node.kind == "CUMULATE"
        case Scan() | Session():
            return False
        case Union():
            return any(map(_is_cumulative, node.inputs))
        case _:
            return _is_cumulative(node.input)


class WindowBinder:
    """Binds one window table function; `described` is what errors call its input."""

    def __init__(self, judge: Judge, source: Source, described: str):
        self.judge, self.source, self.described = judge, source, described

    def bind(self, below: Node, node: WindowTVF) -> Node:
        """Return the rows of a relation in windows."""
        column = node.args["time_column"]
        return self.windows(
            below,
            kind=node.args["kind"],
            time=self._existing(below, column),
            at=span_of(column, self.source),
            intervals=node.args["intervals"],
            offset=node.args.get("offset"),
            keys=[self._existing(below, key) for key in node.args.get("partition_by") or ()],
            span=span_of(node, self.source),
        )

    def windows(
        self,
        below: Node,
        *,
        kind: str,
        time: str,
        at: Span,
        intervals: Sequence[exp.Expr],
        offset: exp.Expr | None,
        keys: Sequence[str],
        span: Span,
    ) -> Node:
        """Return the rows of a relation in windows of a kind over its column `time`, which stands at a place."""
        if time in processing_times(below):
            below = by_clock(below, time)
        self._check_time(below, time, at)
        for added in BOUNDS:
            if any(f.name.lower() == added for f in schema(below)):
                raise BindError(
                    f'{self.described} already has a column "{added}"',
                    span,
                    hint="Rename or leave out that column first.",
                )
        lengths = [self._length(interval) for interval in intervals]
        shift = microseconds(self.judge, offset, self.source) if offset is not None else 0
        match kind:
            case "TUMBLE":
                return Windows(below, kind, time, lengths[0], lengths[0], shift % lengths[0], span)
            case "HOP":
                return Windows(below, kind, time, lengths[1], lengths[0], shift % lengths[0], span)
            case "CUMULATE":
                step, size = lengths
                if size % step:
                    message = "the size of CUMULATE windows must be a multiple of their step"
                    raise BindError(message, span_of(intervals[1], self.source))
                return Windows(below, kind, time, size, step, shift % size, span)
            case _:
                return Session(below, "", tuple(dict.fromkeys(keys)), time, lengths[0], span)

    def _length(self, interval: exp.Expr) -> int:
        length = microseconds(self.judge, interval, self.source)
        if length <= 0:
            raise BindError("a window's size must be positive", span_of(interval, self.source))
        return length

    def _existing(self, below: Node, column: exp.Expr) -> str:
        names = [f.name for f in schema(below)]
        found = next((n for n in names if n.lower() == column.name.lower()), None)
        if found is None:
            message = f'column "{column.name}" does not exist in {self.described}'
            raise BindError(message, span_of(column, self.source), hint=missing("column", column.name, names))
        return found

    def _check_time(self, below: Node, name: str, at: Span) -> None:
        if name != time_attribute(below):
            hint = self._no_time_hint(below, name)
            raise BindError(f'column "{name}" of {self.described} is not a time attribute', at, hint=hint)
        kind = next(f.type for f in schema(below) if f.name == name)
        zone = self.judge.zone
        if kind == "TIMESTAMP WITH TIME ZONE" and zone != "UTC":
            # Windows would have to follow the zone's midnight.
            raise UnsupportedError(
                f"a window over a TIMESTAMP_LTZ in the zone {zone} does not run",
                at,
                hint="Leave 'table.local-time-zone' at UTC, or make the time attribute a TIMESTAMP of local time.",
            )

    def _no_time_hint(self, below: Node, name: str) -> str:
        if attribute := time_attribute(below):
            return f'The time attribute of {self.described} is "{attribute}".'
        if isinstance(below, Scan) and any(f.name == name and f.type in TIMES for f in schema(below)):
            return f"Declare it in CREATE TABLE: WATERMARK FOR {name} AS {name} - INTERVAL '5' SECOND."
        if isinstance(below, Scan):
            return "Declare one in CREATE TABLE: a column of type TIMESTAMP, and WATERMARK FOR it; or p AS PROCTIME()."
        return "A column remains a time attribute as long as every query on the way passes it on unchanged."
