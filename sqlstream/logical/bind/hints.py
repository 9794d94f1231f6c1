"""The hints STATE_TTL and UID after SELECT, as they are written, and the time to live of operators."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlstream.errors import BindError, SourceText, Span, missing
from sqlstream.logical.plan.graph import rebuilt, walk
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.tables import ResultSink, Scan
from sqlstream.names import check_name
from sqlstream.sql.hints import HintCall
from sqlstream.sql.spans import span_of
from sqlstream.units import Duration, parse_duration


@dataclass(frozen=True, slots=True)
class StateTtl:
    """STATE_TTL of one input of a query block; `ttl` 0 means for ever."""

    name: str
    ttl: Duration
    span: Span


@dataclass(frozen=True, slots=True)
class Uid:
    """UID of a query block: the name of its operator."""

    name: str
    span: Span


def state_ttls(select: exp.Expr, source: SourceText) -> tuple[StateTtl, ...]:
    """Return the entries of the STATE_TTL hints of a query block. Raises BindError for a malformed or repeated entry."""
    ttls: list[StateTtl] = []
    for call in _calls(select, "STATE_TTL"):
        if not call.expressions:
            hint = "Write STATE_TTL('orders' = '1 d')."
            raise BindError("STATE_TTL without a table and a duration", span_of(call, source), hint=hint)
        for argument in call.expressions:
            if not isinstance(argument, exp.EQ):
                raise BindError(
                    "STATE_TTL takes names of tables and durations",
                    span_of(argument, source),
                    hint="Write STATE_TTL('orders' = '1 d').",
                )
            if any(t.name.lower() == argument.this.name.lower() for t in ttls):
                raise BindError(f'STATE_TTL: "{argument.this.name}" is given twice', span_of(argument, source))
            ttls.append(StateTtl(argument.this.name, _duration(argument.expression, source), span_of(call, source)))
    return tuple(ttls)


def uid_of(select: exp.Expr, source: SourceText) -> Uid | None:
    """Return the hint UID of a query block, None if it has none. Raises BindError for a malformed or repeated one."""
    uid = None
    for call in _calls(select, "UID"):
        span = span_of(call, source)
        if uid is not None or len(call.expressions) != 1 or not isinstance(text := call.expressions[0], exp.Literal):
            raise BindError("UID takes one name, once in a SELECT", span, hint="Write SELECT /*+ UID('totals') */ ..")
        check_name("an operator", text.name, span)
        uid = Uid(text.name, span)
    return uid


def check_names(ttls: Iterable[StateTtl], names: Iterable[str]) -> None:
    """Raise BindError for a STATE_TTL whose name is not among `names`, the names in FROM."""
    existing = {name.lower(): name for name in names if name}
    for ttl in ttls:
        if ttl.name.lower() not in existing:
            hint = (
                missing("name", ttl.name, existing.values())
                if existing
                else "Give the subquery an alias, and name that."
            )
            raise BindError(f'STATE_TTL: "{ttl.name}" is not in FROM', ttl.span, hint=hint)


def with_ttl(node: Node, below: Collection[Node], ttl: Duration) -> Node:
    """Return a plan with a time to live for the operators above the nodes `below`, unless a hint has set theirs."""

    def limited(node: Node) -> Node:
        return node.limited(ttl) if isinstance(node, StatefulNode) else node

    return rebuilt(node, limited, lambda node: any(node is n for n in below) or isinstance(node, Scan))


def check_followed(node: Node, below: Collection[Node], ttls: Iterable[StateTtl]) -> None:
    """Raise BindError for a STATE_TTL that names no input of an operator, above `below`, with a time to live per input."""
    inputs = {name.lower() for n in _own(node, below) for name in n.remembered_inputs}
    for ttl in ttls:
        if ttl.name.lower() not in inputs:
            hint = "Leave it out. A regular join takes it; the watermark bounds the state of an interval join."
            raise BindError(f'STATE_TTL: the state of "{ttl.name}" needs no time to live', ttl.span, hint=hint)


def with_session_ttl(sink: ResultSink, ttl: Duration) -> ResultSink:
    """Return a plan with the session's time to live (0: for ever) for all operators that no hint has set."""
    return replace(sink, input=with_ttl(sink.input, (), ttl))


def keeps_state(node: Node, below: Collection[Node]) -> bool:
    """Return whether a plan has an operator above the nodes `below` that can forget keys."""
    return any(n.can_forget for n in _own(node, below))


def _own(node: Node, below: Collection[Node]) -> Iterator[StatefulNode]:
    """Yield the stateful nodes of a plan above the nodes `below`: those of a query block above its FROM."""
    known = {id(n) for one in below for n in walk(one)}
    return (n for n in walk(node) if isinstance(n, StatefulNode) and id(n) not in known)


def _calls(select: exp.Expr, name: str) -> list[HintCall]:
    hint = select.args.get("hint")
    return [call for call in hint.expressions if call.this == name] if hint is not None else []


def _duration(value: exp.Expr, source: SourceText) -> Duration:
    try:
        return parse_duration(value.name)
    except ValueError as error:
        raise BindError(str(error), span_of(value, source)) from None
