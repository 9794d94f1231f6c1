"""The order of arrival in the records of operators. A job in which columns decided ties has nothing of it in its state.

An upgrade gives the rows that are kept one place before all others: so they stay before the rows that come, and among each
other in the order of their columns, as before.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from sqlstream.duck.internal_columns import ARRIVED
from sqlstream.logical.plan.state_settings import (
    AnyState,
    OverState,
    RankState,
    SortState,
    Sql,
    TemporalJoinState,
    WindowRankState,
)
from sqlstream.warehouse.jobs import OperatorShape, ShapeItem

# The place of rows that were kept by a job without places.
BEFORE_ALL = "-1"
# The order of arrival in ORDER BY, behind the items of the query if there are any. Items behind it decide between rows of one
# place.
_ITEM = re.compile(rf'(?P<begin>, | ORDER BY )"?{ARRIVED.name}"?(?P<descends> DESC)?')


def is_arrival(item: ShapeItem) -> bool:
    """Return whether an item is the place of a row in the order of arrival."""
    return item.name == ARRIVED.name


def reads_arrival(text: str) -> bool:
    """Return whether the SQL of a call or of an item of ORDER BY reads the order of arrival."""
    return ARRIVED.name in text


def without_arrival(text: str) -> str:
    """Return the SQL of a call without the order of arrival.

    >>> without_arrival('first("a" ORDER BY "__sqlstream_arrived" DESC)')
    'first("a")'
    >>> without_arrival('first("a" ORDER BY "b", "__sqlstream_arrived", ("a")) FILTER (WHERE "c")')
    'first("a" ORDER BY "b") FILTER (WHERE "c")'
    """
    item = _ITEM.search(text)
    return text if item is None else without_arrival(text[: item.start()] + text[_end_of_call(text, item.end()) :])


def _end_of_call(text: str, place: int) -> int:
    """Return the place of the parenthesis that closes the call with an ORDER BY in which `place` is."""
    depth, quote = 0, ""
    for end in range(place, len(text)):
        letter = text[end]
        if quote or letter in "\"'":
            quote = letter if not quote else "" if letter == quote else quote
        elif letter == ")" and not depth:
            return end
        else:
            depth += {"(": 1, ")": -1}.get(letter, 0)
    return len(text)


def is_latest_first(call: str) -> bool:
    """Return whether the order of arrival in the SQL of a call descends.

    >>> is_latest_first('arg_max("a", "ts" ORDER BY "__sqlstream_arrived" DESC)')
    True
    """
    item = _ITEM.search(call)
    return item is not None and item["descends"] is not None


def decides_alone(call: str) -> bool:
    """Return whether no two rows of a call have the same place, so that no item is behind the order of arrival.

    >>> decides_alone('first("a" ORDER BY "__sqlstream_arrived")')
    True
    >>> decides_alone('first("a" ORDER BY "__sqlstream_arrived", "a")')
    False
    """
    item = _ITEM.search(call)
    return item is not None and not call[item.end() : _end_of_call(call, item.end())].startswith(",")


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
    return tuple(items), settings
