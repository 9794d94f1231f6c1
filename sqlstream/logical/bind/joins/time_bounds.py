"""Bounds of interval joins: how far conditions let the times of two rows lie apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from sqlstream.errors import SqlStreamError
from sqlstream.units import NO_TIME, Duration

# The length of a constant interval.
Length = Callable[[exp.Expr], Duration]


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """The bounds left time - `before` <= right time <= left time + `after`, in microseconds; None: no bound."""

    before: Duration | None = None
    after: Duration | None = None

    def and_(self, other: TimeBounds) -> TimeBounds:
        """Return the bounds of both conditions together."""
        return TimeBounds(_least(self.before, other.before), _least(self.after, other.after))


@dataclass(frozen=True, slots=True)
class _Sum:
    """A sum of times: columns with their factors, and a constant length."""

    columns: Mapping[str, int]
    length: Duration = NO_TIME

    def plus(self, other: _Sum, sign: int) -> _Sum:
        """Return this sum plus `sign` times another one."""
        names = {*self.columns, *other.columns}
        times = {name: self.columns.get(name, 0) + sign * other.columns.get(name, 0) for name in names}
        return _Sum({name: n for name, n in times.items() if n}, Duration(self.length + sign * other.length))


def time_bounds(condition: exp.Expr, left: str, right: str, length: Length) -> TimeBounds | None:
    """Return the bounds that a bound condition sets for two time columns; None for any other condition.

    `length` returns the length of a constant interval, and raises SqlStreamError for anything else.
    """
    match condition:
        case exp.Paren():
            return time_bounds(condition.this, left, right, length)
        case exp.Between():
            low = _compared(condition.this, condition.args["low"], ">=", left, right, length)
            high = _compared(condition.this, condition.args["high"], "<=", left, right, length)
            return low.and_(high) if low is not None and high is not None else None
        case exp.GT() | exp.GTE() | exp.LT() | exp.LTE() | exp.EQ():
            sign = {exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=", exp.EQ: "="}[type(condition)]
            return _compared(condition.this, condition.expression, sign, left, right, length)
        case _:
            return None


def _compared(a: exp.Expr, b: exp.Expr, sign: str, left: str, right: str, length: Length) -> TimeBounds | None:
    sums = _sum(a, length), _sum(b, length)
    if sums[0] is None or sums[1] is None:
        return None
    difference = sums[0].plus(sums[1], -1)
    if difference.columns == {left: -1, right: 1}:
        # right - left + c >= 0: the right time lies at most c before the left one.
        least, most = difference.length, Duration(-difference.length)
    elif difference.columns == {left: 1, right: -1}:
        least, most = Duration(-difference.length), difference.length
        sign = sign.translate(str.maketrans("<>", "><"))
    else:
        return None
    match sign:
        case ">" | ">=":
            return TimeBounds(before=Duration(least - (sign == ">")))
        case "<" | "<=":
            return TimeBounds(after=Duration(most - (sign == "<")))
        case _:
            return TimeBounds(least, most)


def _sum(node: exp.Expr, length: Length) -> _Sum | None:
    match node:
        case exp.Paren():
            return _sum(node.this, length)
        case exp.Column():
            return _Sum({node.name: 1})
        case exp.Add() | exp.Sub():
            parts = _sum(node.this, length), _sum(node.expression, length)
            if parts[0] is None or parts[1] is None:
                return None
            return parts[0].plus(parts[1], 1 if isinstance(node, exp.Add) else -1)
        case exp.Neg():
            inner = _sum(node.this, length)
            return _Sum({}).plus(inner, -1) if inner is not None else None
        case _ if node.find(exp.Column) is None:
            try:
                return _Sum({}, length(node))
            except SqlStreamError:
                return None
        case _:
            return None


def _least(a: Duration | None, b: Duration | None) -> Duration | None:
    known = [n for n in (a, b) if n is not None]
    return min(known, default=None)
