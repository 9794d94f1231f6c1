"""Rows of side outputs that a method yields among its results: the class of a row determines its output."""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from sqlstream.functions.process.context import Context
from sqlstream.functions.process.shapes import ResultShape


def classes_of(sides: Mapping[str, ResultShape]) -> dict[Any, str]:
    """Map the class of each side output's rows to its name; leave out plain values, and classes that several outputs share."""
    row_classes = [shape.row_class for shape in sides.values() if shape.row_class is not None]
    return {shape.row_class: name for name, shape in sides.items() if row_classes.count(shape.row_class) == 1}


def without_sides(hint: Any, classes: Collection[Any]) -> Any:
    """Remove the classes of side outputs from the hint of a row, if it is a union.

    >>> without_sides(int | str, [str, float]), without_sides(str, [str]), without_sides(str | None, [str])
    (<class 'int'>, <class 'str'>, str | None)
    """
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint
    rest = tuple(one for one in typing.get_args(hint) if one not in classes)
    if len(rest) == len(typing.get_args(hint)) or not {*rest} - {type(None)}:
        return hint
    return typing.Union[rest]  # noqa: UP007


def routing(method: Callable[..., Any], classes: Mapping[Any, str]) -> Callable[..., Any]:
    """Wrap a method so that it emits yielded rows of `classes` to their side outputs, and returns a list of the other rows."""

    @functools.wraps(method)
    def call(context: Context, *row: Any) -> Iterable[Any] | None:
        result = method(context, *row)
        if result is None:
            return None
        own = []
        for one in result:
            if (output := classes.get(type(one))) is None:
                own.append(one)
            else:
                context.emit(output, one)
        return own

    return call
