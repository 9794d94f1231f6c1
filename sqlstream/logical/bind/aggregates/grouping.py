"""GROUP BY as grouping sets: GROUPING SETS, ROLLUP and CUBE stand for several lists of keys."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations, product
from math import prod

from sqlglot import exp

Sets = list[list[exp.Expr]]


def has_sets(group: exp.Group) -> bool:
    """Return whether GROUP BY contains GROUPING SETS, ROLLUP or CUBE."""
    return any(isinstance(e, exp.Rollup | exp.Cube | exp.GroupingSets) for e in group.expressions)


def grouping_sets(elements: Sequence[exp.Expr]) -> Sets:
    """Return the grouping sets, lists of keys, of the elements of GROUP BY: all combinations of the sets of each element."""
    return [list(chain.from_iterable(parts)) for parts in product(*map(_sets, elements))]


def count_sets(elements: Sequence[exp.Expr]) -> int:
    """Return the number of sets that `grouping_sets` would return."""
    return prod(map(_count, elements))


def _count(element: exp.Expr) -> int:
    match element:
        case exp.GroupingSets():
            return sum(map(_count, element.expressions))
        case exp.Rollup():
            return len(element.expressions) + 1
        case exp.Cube():
            return 1 << len(element.expressions)
        case _:
            return 1


def _sets(element: exp.Expr) -> Sets:
    match element:
        case exp.GroupingSets():
            return list(chain.from_iterable(map(_sets, element.expressions)))
        case exp.Rollup():
            members = [_keys(e) for e in element.expressions]
            return [list(chain.from_iterable(members[:n])) for n in range(len(members), -1, -1)]
        case exp.Cube():
            members = [_keys(e) for e in element.expressions]
            sizes = range(len(members), -1, -1)
            return [list(chain.from_iterable(chosen)) for n in sizes for chosen in combinations(members, n)]
        case _:
            return [_keys(element)]


def _keys(element: exp.Expr) -> list[exp.Expr]:
    """Return the keys in parentheses, which may be none, or the key itself."""
    if isinstance(element, exp.Tuple):
        return [key for e in element.expressions for key in _keys(e)]
    return [element.unnest()]
