"""The order of arrival in the records of operators. The state of a job in which columns decided ties does not have this order.

An upgrade gives all rows in such state one common position, before all positions of later rows. So these rows stay before the
rows that come, and keep their order by columns among each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from sqlstream.duck.internal_columns import ARRIVED
from sqlstream.logical.plan.state_settings import (
    AnyState,
    OverState,
    ProcessState,
    RankState,
    SortState,
    Sql,
    TemporalJoinState,
    WindowRankState,
)
from sqlstream.warehouse.jobs import OperatorShape, ShapeItem

# The position of rows that were kept by a job without positions.
BEFORE_ALL = "-1"
# The end of an item of ORDER BY that descends.
_DESCENDS = re.compile(r" DESC(?: NULLS (?:FIRST|LAST))?\Z")
_ORDER_BY = " ORDER BY "


@dataclass(frozen=True, slots=True)
class _Ordering:
    """Where the SQL of a call reads the order of arrival: that item of its ORDER BY is the text from `begin` to `behind`.

    The ORDER BY ends at `end`. Items between `behind` and `end` decide between rows with one position in the order of arrival.
    """

    begin: int
    behind: int
    end: int


def is_arrival(item: ShapeItem) -> bool:
    """Return whether an item is a row's position in the order of arrival."""
    return item.name == ARRIVED.name


def reads_arrival(text: str) -> bool:
    """Return whether the SQL of a call or of an item of ORDER BY reads the order of arrival."""
    return ARRIVED.name in text


def without_arrival(text: str) -> str:
    """Return the SQL of a call without the order of arrival.

    >>> without_arrival('first("a" ORDER BY "__sqlstream_arrived" DESC)')
    'first("a")'
    >>> without_arrival('list("a" ORDER BY f("b", 1), CAST("__sqlstream_arrived" AS HUGEINT) + 1, ("a")) FILTER (WHERE "c")')
    'list("a" ORDER BY f("b", 1)) FILTER (WHERE "c")'
    """
    ordering = _ordering(text)
    return text if ordering is None else text[: ordering.begin] + text[ordering.end :]


def is_latest_first(call: str) -> bool:
    """Return whether the order of arrival in the SQL of a call descends.

    >>> is_latest_first('arg_max("a", "ts" ORDER BY "__sqlstream_arrived" DESC, "a")')
    True
    """
    ordering = _ordering(call)
    return ordering is not None and _DESCENDS.search(call[ordering.begin : ordering.behind]) is not None


def decides_alone(call: str) -> bool:
    """Return whether the order of arrival is the last item of a call's ORDER BY, because no two rows share a position there.

    >>> decides_alone('first("a" ORDER BY "__sqlstream_arrived")')
    True
    >>> decides_alone('first("a" ORDER BY "__sqlstream_arrived", "a")')
    False
    """
    ordering = _ordering(call)
    return ordering is not None and ordering.behind == ordering.end


def _ordering(text: str) -> _Ordering | None:
    """Return where a call reads the order of arrival; None if it does not."""
    index = text.find(ARRIVED.name)
    # Of each parenthesis that is open: where the last item of its ORDER BY begins, None if it has none.
    open_: list[int | None] = [None]
    for at, letter in _outside_quotes(text):
        if at >= index:
            break
        if letter == "(":
            open_.append(None)
        elif letter == ")":
            open_.pop()
        elif text.startswith(_ORDER_BY, at) or (letter == "," and open_[-1] is not None):
            open_[-1] = at
    levels = [level for level, begin in enumerate(open_) if begin is not None]
    if index < 0 or not levels:
        return None
    begin, depth, behind = open_[levels[-1]], len(open_) - 1 - levels[-1], len(text)
    assert begin is not None
    for at, letter in _outside_quotes(text):
        if at < index:
            continue
        if letter == ")" and not depth:
            return _Ordering(begin, min(behind, at), at)
        if letter == "," and not depth:
            behind = min(behind, at)
        depth += {"(": 1, ")": -1}.get(letter, 0)
    return None


def _outside_quotes(text: str) -> Iterator[tuple[int, str]]:
    """Yield the index and the letter for each letter of a text outside of quotes."""
    quote = ""
    for index, letter in enumerate(text):
        if quote or letter in "\"'":
            quote = letter if not quote else "" if letter == quote else quote
        else:
            yield index, letter


def declared_order(order: tuple[Sql, ...]) -> tuple[Sql, ...]:
    """Return the items of an order that the query names."""
    return tuple(item for item in order if not reads_arrival(item.text))


def shape_by_columns(shape: OperatorShape, settings: AnyState) -> tuple[tuple[ShapeItem, ...], AnyState]:
    """Return the items of a shape, and its settings, as they would be if columns decided ties."""
    items = (
        replace(item, expression=without_arrival(item.expression), origin=without_arrival(item.origin))
        for item in shape.items
        if not is_arrival(item)
    )
    if isinstance(settings, RankState | WindowRankState | OverState | SortState):
        settings = replace(settings, order=declared_order(settings.order))
    elif isinstance(settings, TemporalJoinState):
        settings = replace(settings, ties="columns")
    elif isinstance(settings, ProcessState):
        inputs = tuple((index, replace(order, ties="columns")) for index, order in settings.inputs)
        settings = replace(settings, inputs=inputs)
    return tuple(items), settings
