"""Keys, items and the paths of rows in canonical form. The operators of two jobs are compared in this form.

A rule of the optimizer may write an expression as an equal one, so texts say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from sqlstream.jobs.upgrades.older_settings import settings_of
from sqlstream.logical.plan.canonical import canonical
from sqlstream.warehouse.jobs import OperatorShape, RowPath, ShapeItem

_FUNCTION = re.compile(r"\w+(?=\()")
_FILTER = " FILTER ("
# What may follow a call: the type of its accumulator, its frame, IGNORE NULLS. It begins with one of these.
_MANNERS = (" [", " ignore nulls [")
_WHERE = "WHERE "
_EQUALS = " = "
_LATERAL = re.compile(r"(?P<how>Lateral(?: outer)?) (?P<rows>.*)", re.DOTALL)
_LOOKUP = re.compile(r"(?P<table>LookupJoin \w+ .*? \(.*?\)) by (?P<keys>.*?)(?: where (?P<where>.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CallForm:
    """A call of an aggregate: its function, and its arguments, order, filter and frame in canonical form."""

    function: str
    rest: str


# -- keys and items


def key_form(shape: OperatorShape, key: ShapeItem) -> str:
    """Return the form of a key of an operator. If several inputs have the key, their expressions stay in order."""
    if not settings_of(shape).has_inputs:
        return canonical(key.value)
    return _EQUALS.join(map(canonical, _sides(key.value)))


def key_forms(shape: OperatorShape) -> tuple[tuple[str, str], ...]:
    """Return the forms and types of the keys of an operator."""
    return tuple((key_form(shape, key), key.type) for key in shape.keys)


def value_form(item: ShapeItem) -> str:
    """Return the form of the value of an item; of a state this is its kind."""
    return item.value if item.kind == "state" else text_form(item.value)


def expression_form(item: ShapeItem) -> str:
    """Return the form of the expression of an item; of a state this is its kind."""
    return item.expression if item.kind == "state" else text_form(item.expression)


def text_form(text: str) -> str:
    """Return the form of an expression, or of a call and what follows it.

    >>> text_form('sum(("a" + 1)) [rows 1 preceding]') == text_form('sum("a"+1) [rows 1 preceding]')
    True
    """
    call, manner = _call_and_manner(text)
    return f"{canonical(call)}{manner}" if call else canonical(text)


def optional_form(text: str | None) -> str | None:
    """Return the form of an expression, or None."""
    return text_form(text) if text is not None else None


def call_form(text: str) -> CallForm | None:
    """Return the form of a call, or None if a text is something else.

    >>> call_form('sum("a") FILTER (WHERE ("b" > 0))') == call_form('sum(("a")) FILTER (WHERE 0 < "b")')
    True
    >>> call_form('sum("a") + 1') is None
    True
    """
    call, manner = _call_and_manner(text)
    if not call:
        return None
    function, parenthesis, inside = call.partition("(")
    # Calls of other functions with the same arguments have the same `rest`.
    return CallForm(function.lower(), f"{canonical(f'f{parenthesis}{inside}')}{manner}")


def _call_and_manner(text: str) -> tuple[str, str]:
    """Return a call and what follows it; two empty texts if a text is no call."""
    name = _FUNCTION.match(text)
    end = _closing(text, name.end()) if name is not None else None
    if end is not None and text.startswith(_FILTER, end):
        end = _closing(text, end + len(_FILTER) - 1)
    if end is None or not (end == len(text) or text.startswith(_MANNERS, end)):
        return "", ""
    return text[:end], text[end:]


def _closing(text: str, opening: int) -> int | None:
    """Return the index after the parenthesis that closes the one at the index `opening`; None if it is not closed."""
    depth = 0
    for index, letter in _outside_quotes(text, opening):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if not depth:
            return index + 1
    return None


def _sides(text: str) -> Iterator[str]:
    """Yield the sides of an equation in their order.

    >>> list(_sides('"a = b" = ("c" = 1)'))
    ['"a = b"', '("c" = 1)']
    """
    depth = begin = 0
    for index, letter in _outside_quotes(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if not depth and text.startswith(_EQUALS, index):
            yield text[begin:index]
            begin = index + len(_EQUALS)
    yield text[begin:]


def _outside_quotes(text: str, begin: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the index and the letter for each letter of a text outside of quotes, from the index `begin` on."""
    quote = ""
    for index in range(begin, len(text)):
        letter = text[index]
        if quote or letter in "\"'":
            quote = letter if not quote else "" if letter == quote else quote
        else:
            yield index, letter


# -- the paths of rows


def steps_form(steps: Iterable[str]) -> tuple[str, ...]:
    """Return the forms of the steps of a path. Consecutive filters are one step.

    >>> steps_form(['WHERE "a" > 1', 'WHERE ("b")']) == steps_form(['WHERE "b" AND 1 < "a"'])
    True
    """
    return tuple(_steps_form(steps))


def _steps_form(steps: Iterable[str]) -> Iterator[str]:
    for is_filter, group in groupby(steps, key=lambda step: step.startswith(_WHERE)):
        if is_filter:
            yield _WHERE + canonical(" AND ".join(f"({step.removeprefix(_WHERE)})" for step in group))
        else:
            yield from map(_step_form, group)


def _step_form(step: str) -> str:
    if lateral := _LATERAL.fullmatch(step):
        return f"{lateral['how']} {canonical(lateral['rows'])}"
    if lookup := _LOOKUP.fullmatch(step):
        keys, where = f"[{lookup['keys']}]", lookup["where"] or "true"
        return f"{lookup['table']} by {canonical(keys)} where {canonical(where)}"
    return step


def columns_form(path: RowPath, names: Sequence[str]) -> tuple[str | None, ...]:
    """Return the forms of columns of the rows that arrive on a path, None for a column that it lacks."""
    return tuple(optional_form(path.columns.get(name)) for name in names)
