"""Matches the operators of a changed query with those of the job: by name, then by state, then by keys and inputs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from sqlstream.jobs.upgrades.arrival import shape_by_columns
from sqlstream.jobs.upgrades.forms import key_forms, value_form
from sqlstream.jobs.upgrades.older_settings import settings_of
from sqlstream.warehouse.jobs import OperatorRecord

# The name in the job of each matched operator, by its name in the query.
Pairs = dict[str, str]


def matched(old: Sequence[OperatorRecord], new: Sequence[OperatorRecord]) -> Pairs:
    """Return the name in the job of each matched operator, by its name in the query; operators without a match are left out.

    Names that a query gives (a view, a CTE, `uid`, the hint UID) count first. Then operators with equal state match, also
    if the order of arrival decides ties in one of them only, and then operators of one kind with equal keys and inputs; in all
    cases only if each side has exactly one such operator.
    """
    pairs: Pairs = {}
    by_name = {o.name.lower(): o for o in old if _is_named(o)}
    for one in new:
        other = by_name.get(one.name.lower())
        if _is_named(one) and other is not None and _kind(one) == _kind(other):
            pairs[one.name] = other.name
    for signature in (_state, _state_by_columns, _what):
        _match_by(signature, old, new, pairs)
    return pairs


def _match_by(
    signature: Callable[[OperatorRecord], Hashable | None],
    old: Sequence[OperatorRecord],
    new: Sequence[OperatorRecord],
    pairs: Pairs,
) -> None:
    old_names = set(pairs.values())
    theirs = [o for o in old if o.name not in old_names]
    ours = [n for n in new if n.name not in pairs]
    for one in ours:
        sought = signature(one)
        alike = [n for n in ours if signature(n) == sought]
        matches = [o for o in theirs if signature(o) == sought]
        if sought is not None and len(alike) == len(matches) == 1:
            pairs[one.name] = matches[0].name


def _is_named(operator: OperatorRecord) -> bool:
    return operator.shape is not None and operator.shape.named


def _kind(operator: OperatorRecord) -> str | None:
    return operator.shape.operator if operator.shape is not None else None


def _state(operator: OperatorRecord) -> Hashable | None:
    """Return a value that is equal for operators with the same state."""
    shape = operator.shape
    if shape is None:
        return None
    items = tuple(sorted((i.kind, i.input, value_form(i), i.type) for i in shape.items))
    return shape.operator, key_forms(shape), items, settings_of(shape), operator.tables


def _state_by_columns(operator: OperatorRecord) -> Hashable | None:
    """Return a value that is equal for operators whose state would be the same if columns decided ties in both."""
    shape = operator.shape
    if shape is None:
        return None
    of_shape, settings = shape_by_columns(shape, settings_of(shape))
    items = tuple(sorted((i.kind, i.input, value_form(i), i.type) for i in of_shape))
    return shape.operator, key_forms(shape), items, settings


def _what(operator: OperatorRecord) -> Hashable | None:
    """Return a value that is equal for operators of one kind with the same keys and inputs, whatever they compute."""
    shape = operator.shape
    if shape is None:
        return None
    return shape.operator, tuple(form for form, _ in key_forms(shape)), shape.inputs
