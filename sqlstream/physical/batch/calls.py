"""The SQL of aggregate calls and of calls with OVER in a batch query."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlstream.duck.aggregates.aggregate_call import row_of
from sqlstream.duck.aggregates.functions import ALIASES, FUNCTIONS, Kind
from sqlstream.duck.sql import Items, quote_name
from sqlstream.logical.plan.expressions import AggregateItem, Dependencies, Expression
from sqlstream.logical.plan.over import POSITIONAL, RANKS, OverItem
from sqlstream.physical.batch.rows import CannotVerify


def aggregate(item: AggregateItem, *, runs: bool) -> str:
    """Return an aggregate call as a select item, with the name of its result.

    With `runs` a user's function is called by its steps, which a job's connection has registered; else by its name.
    Raises CannotVerify for an approximation, and if the result depends on the order of arrival, the batch or chance.
    """
    call = _accumulated(item) if item.python is not None and runs else _call(item)
    return f"{call} AS {quote_name(item.name)}"


def _accumulated(item: AggregateItem) -> str:
    """Return the call of a user's function that adds all rows of a group to one accumulator, so that nothing is merged."""
    assert item.python is not None
    deterministic(item.expressions)
    row = row_of([e.sql for e in item.arguments])
    # Where rows have no order, their values have one, as in jobs.
    order = [row] if item.distinct else [*(o.sql for o in item.order_by), row]
    where = f" FILTER (WHERE {item.filter.sql})" if item.filter else ""
    rows = f"list({'DISTINCT ' if item.distinct else ''}{row} ORDER BY {', '.join(order)}){where}"
    accumulate, finish = (quote_name(item.python.step(name)) for name in ("accumulate", "finish"))
    return f"{finish}({accumulate}({rows}))"


def _call(item: AggregateItem) -> str:
    name = ALIASES.get(item.function, item.function)
    definition = FUNCTIONS.get(name)
    if name.startswith("approx") or name == "reservoir_quantile":
        raise CannotVerify(f"aggregate {item.function} is an approximation", item.span)
    if (
        definition is not None
        and definition.ordered
        and definition.kind in (Kind.PICK, Kind.PICKS, Kind.VALUES)
        and not item.order_by
    ):
        raise CannotVerify(
            f"what aggregate {item.function} gives depends on the order in which rows come",
            item.span,
            hint="Give it an ORDER BY inside of the call.",
        )
    deterministic(item.expressions)
    if definition is not None and definition.kind is Kind.PICKS:
        return _picks(item, name)
    if definition is not None and definition.kind is Kind.ARG and len(item.arguments) == 3 and item.order_by:
        return _extremes(item, name)
    inside = ", ".join(e.sql for e in item.arguments) or "*"
    order = f" ORDER BY {', '.join(e.sql for e in item.order_by)}" if item.order_by else ""
    where = f" FILTER (WHERE {item.filter.sql})" if item.filter else ""
    return f"{name}({'DISTINCT ' if item.distinct else ''}{inside}{order}){where}"


def _picks(item: AggregateItem, name: str) -> str:
    """Return the first or the last n values in the order of arrival."""
    value, n = (e.sql for e in item.arguments)
    order = ", ".join(e.sql for e in item.order_by)
    where = f" FILTER (WHERE {item.filter.sql})" if item.filter else ""
    return f"list({value} ORDER BY {order}){where}[{f':{n}' if name == 'earliest_by_offset' else f'-{n}:'}]"


def _extremes(item: AggregateItem, name: str) -> str:
    """Return the values of the n rows with the extreme keys: DuckDB's own function takes equal keys in any order."""
    value, key, n = (e.sql for e in item.arguments)
    _, way, *suffix = name.split("_")
    order = ", ".join([f"{key} {'DESC' if way == 'max' else 'ASC'} NULLS LAST", *(e.sql for e in item.order_by)])
    conditions = [f"({item.filter.sql})"] if item.filter else []
    conditions += [] if suffix else [f"({e}) IS NOT NULL" for e in (value, key)]
    where = f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""
    return f"list({value} ORDER BY {order}){where}[:{n}]"


def deterministic(expressions: Iterable[Expression]) -> None:
    """Raise CannotVerify if the value of an expression depends on the batch's time or watermark, or on chance."""
    for expression in expressions:
        if expression.volatile:
            raise CannotVerify(f"{expression.sql} gives another value each time", expression.span)
        if expression.reads.clock:
            what = "the watermark" if expression.reads.watermark else "the time"
            raise CannotVerify(f"an expression depends on {what} of the batch", expression.span)


def over(
    item: OverItem,
    keys: tuple[Expression, ...],
    time: str,
    order: tuple[str, ...],
    tie_breakers: Items,
    *,
    by_arrival: bool = False,
) -> str:
    """Return a call with OVER as a select item, with the name of its result.

    `keys` are the expressions of PARTITION BY. Rows are ordered by the SQL `time`, then by the items of `order`; equal rows by
    `tie_breakers`, `by_arrival` if these begin with the order of arrival. Raises CannotVerify as `aggregate` does, and for an
    aggregate function of Python.
    """
    call, frame = item.call, item.frame
    deterministic((*keys, *call.expressions))
    by = f"PARTITION BY {', '.join(k.sql for k in keys)} " if keys else ""
    peers, rows = ", ".join([time, *order]), ", ".join([time, *order, tie_breakers])
    name = quote_name(call.name)
    if call.function in RANKS:
        return f"{call.function}() OVER ({by}ORDER BY {rows if call.function == 'row_number' else peers}) AS {name}"
    nulls = " IGNORE NULLS" if item.ignore_nulls else ""
    if call.function in POSITIONAL:
        inside = ", ".join(e.sql for e in call.arguments)
        # A frame of RANGE holds all rows of one time: the order of their columns decides which is the first.
        among = f" ORDER BY {rows}" if frame.mode == "range" and call.function not in ("lag", "lead") else ""
        sql = f"{call.function}({inside}{among}{nulls})"
    else:
        if call.python is not None:
            raise CannotVerify(f"aggregate {call.function} is a function of Python, in OVER", call.span)
        sql = _call(_in_order(call, rows) if by_arrival else call)
    if call.function in ("lag", "lead"):
        return f"{sql} OVER ({by}ORDER BY {rows}) AS {name}"
    if frame.mode == "rows":
        first = _bound(frame.preceding, "PRECEDING", "FOLLOWING")
        last = _bound(frame.following, "FOLLOWING", "PRECEDING")
        return f"{sql} OVER ({by}ORDER BY {rows} ROWS BETWEEN {first} AND {last}) AS {name}"
    first = _bound(frame.preceding, "PRECEDING", "FOLLOWING", "to_microseconds({})")
    last = _bound(frame.following, "FOLLOWING", "PRECEDING", "to_microseconds({})")
    sorted_by = peers if frame.preceding is None and not frame.following else time
    return f"{sql} OVER ({by}ORDER BY {sorted_by} RANGE BETWEEN {first} AND {last}) AS {name}"


def _in_order(call: AggregateItem, rows: str) -> AggregateItem:
    """Return a call that takes the rows of its frame in an order, SQL, if its result depends on that."""
    shape = FUNCTIONS.get(ALIASES.get(call.function, call.function))
    if shape is None or not shape.ordered or shape.kind is Kind.QUANTILE or call.distinct:
        return call
    return replace(call, order_by=(*call.order_by, Expression(rows, "", reads=Dependencies())))


def _bound(distance: int | None, forth: str, back: str, unit: str = "{}") -> str:
    if distance is None:
        return f"UNBOUNDED {forth}"
    if distance == 0:
        return "CURRENT ROW"
    return f"{unit.format(abs(distance))} {forth if distance > 0 else back}"
