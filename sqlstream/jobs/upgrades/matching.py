"""Which operator of a job an operator of the changed query is: by its name, then by what it computes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from sqlstream.jobs.upgrades.forms import key_forms, value_form
from sqlstream.jobs.upgrades.older_settings import settings_of
from sqlstream.warehouse.jobs import OperatorRecord

# Pairs of operators of the job and of the query, by the names that they have there.
Pairs = dict[str, str]


def matched(old: Sequence[OperatorRecord], new: Sequence[OperatorRecord]) -> Pairs:
    """Return which operator of the job each operator of the query is, by the names of the latter; others are not there.

    Names that a query gives (a view, a CTE, `uid`, the hint UID) count first. Then operators are the same that keep the same
    state, and then those that do the same by the same keys over the same input, each where there is one of them alone.
    """
    pairs: Pairs = {}
    given = {o.name.lower(): o for o in old if _is_named(o)}
    for one in new:
        other = given.get(one.name.lower())
        if _is_named(one) and other is not None and _kind(one) == _kind(other):
            pairs[one.name] = other.name
    for signature in (_state, _what):
        _match_by(signature, old, new, pairs)
    return pairs


def _match_by(
    signature: Callable[[OperatorRecord], Hashable | None],
    old: Sequence[OperatorRecord],
    new: Sequence[OperatorRecord],
    pairs: Pairs,
) -> None:
    taken = set(pairs.values())
    theirs = [o for o in old if o.name not in taken]
    ours = [n for n in new if n.name not in pairs]
    for one in ours:
        sought = signature(one)
        alike = [n for n in ours if signature(n) == sought]
        found = [o for o in theirs if signature(o) == sought]
        if sought is not None and len(alike) == len(found) == 1:
            pairs[one.name] = found[0].name


def _is_named(operator: OperatorRecord) -> bool:
    return operator.shape is not None and operator.shape.named


def _kind(operator: OperatorRecord) -> str | None:
    return operator.shape.operator if operator.shape is not None else None


def _state(operator: OperatorRecord) -> Hashable | None:
    """Return what two operators have alike that keep the same state."""
    shape = operator.shape
    if shape is None:
        return None
    items = tuple(sorted((i.kind, i.input, value_form(i), i.type) for i in shape.items))
    return shape.operator, key_forms(shape), items, settings_of(shape), operator.tables


def _what(operator: OperatorRecord) -> Hashable | None:
    """Return what two operators have alike that do the same by the same keys, whatever else they compute."""
    shape = operator.shape
    if shape is None:
        return None
    return shape.operator, tuple(form for form, _ in key_forms(shape)), shape.inputs
