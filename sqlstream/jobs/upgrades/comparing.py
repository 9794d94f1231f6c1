"""Compares a job with a changed query: which operators keep, adapt, begin or lose their state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from sqlstream.jobs.upgrades.adaptations.registry import Adapter, adapted
from sqlstream.jobs.upgrades.arrival import without_arrival
from sqlstream.jobs.upgrades.changes import (
    AdaptedOperator,
    Change,
    Comparison,
    DroppedOperator,
    KeptOperator,
    NewOperator,
    UnadaptableOperator,
)
from sqlstream.jobs.upgrades.compared_tables import compared_sinks, compared_sources, dropped_sinks, dropped_sources
from sqlstream.jobs.upgrades.forms import expression_form, key_form, key_forms, steps_form, text_form, value_form
from sqlstream.jobs.upgrades.matching import Pairs, matched
from sqlstream.jobs.upgrades.older_settings import settings_of
from sqlstream.jobs.upgrades.origins import with_origins
from sqlstream.jobs.upgrades.settings_words import changed_settings
from sqlstream.logical.plan.state_settings import SetOperationState
from sqlstream.physical.plan import StatefulStage
from sqlstream.warehouse.jobs import JobRecord, OperatorRecord, OperatorShape, RowPath, ShapeItem

_NOT_AGAIN = "what was computed before is not computed again"
_TAKES_BACK = "its input takes rows back, and would take back others than have come"
_UNKNOWN = (
    "the job was last started by a version of sqlstream that did not record what it computes; "
    "run it once with the query that it has"
)


def compare(
    old: JobRecord,
    new: JobRecord,
    stages: Sequence[StatefulStage],
    migrations: Mapping[str, Adapter] | None = None,
    *,
    is_fork: bool = False,
) -> Comparison:
    """Return the changes of the job with the record `old` under a new query; `new` is the record that it would get.

    `stages` are the stages of the new plan. `migrations` has adapters that take precedence, by operator name in lower case.
    """
    sources = compared_sources(old, new)
    dropped = dropped_sources(old, new)
    old, new = with_origins(old, new, sources)
    pairs = matched(old.operators, new.operators)
    old_operators = {o.name: o for o in old.operators}
    # Without shapes nothing can be matched, and all state would go.
    is_known = all(o.shape is not None for o in old.operators)
    unmatched = {r.name for r in new.operators if r.name not in pairs and r.name.lower() not in (migrations or {})}
    operators: list[Change] = []
    for record, stage in zip(new.operators, stages, strict=True):
        was = old_operators.get(pairs.get(record.name, ""))
        migrate = (migrations or {}).get(record.name.lower())
        if migrate is not None:
            # Where the job has no such operator, all of its state is made, and nothing is counted yet.
            operators.append(migrate(was or replace(record, name="", tables=()), record, stage))
        elif not is_known:
            operators.append(UnadaptableOperator(record.name, _UNKNOWN))
        elif was is None:
            operators.append(_begins(record, old, pairs))
        else:
            operators.append(_goes_on(was, record, stage, pairs, unmatched))
    gone = [o for o in old.operators if is_known and o.name not in pairs.values()]
    operators += [DroppedOperator(o.name, ("its state goes",)) for o in gone]
    fresh = {o.operator for o in operators if isinstance(o, NewOperator)}
    sinks, refusals = compared_sinks(old, new, pairs, fresh, is_fork=is_fork)
    return Comparison(
        tuple(operators),
        sources,
        sinks,
        dropped,
        dropped_sinks(old, sinks),
        refusals,
    )


def _begins(record: OperatorRecord, old: JobRecord, pairs: Pairs) -> NewOperator:
    notes = ["begins without state: its results are those of the rows that come from now on"]
    kinds = {o.shape.operator for o in old.operators if o.shape is not None and o.name not in pairs.values()}
    if record.shape is not None and not record.shape.named and record.shape.operator in kinds:
        notes.append("it could not be matched with an operator of the job: UID('name') gives it a name")
    return NewOperator(record.name, tuple(notes))


def _goes_on(
    old: OperatorRecord, new: OperatorRecord, stage: StatefulStage, pairs: Pairs, unmatched: Collection[str]
) -> Change:
    """Return the change of an operator that the job has. `unmatched` are the operators of the query that begin without state."""
    if old.shape is None or new.shape is None:
        return UnadaptableOperator(new.name, _UNKNOWN)
    if old.shape.operator != new.shape.operator:
        return UnadaptableOperator(new.name, f"it was {old.shape.operator}, and would be {new.shape.operator}")
    if _are_swapped(old.shape, new.shape, pairs):
        return UnadaptableOperator(new.name, "its inputs are in another order, and their rows are kept by their places")
    if (reason := _unlike_inputs(old, new, pairs, unmatched)) is not None:
        return UnadaptableOperator(new.name, reason)
    if is_same_state(old, new):
        return KeptOperator(new.name, old.name, tuple(_notes(old, new, pairs)))
    change = adapted(old, new, stage)
    if isinstance(change, AdaptedOperator):
        change = AdaptedOperator(change.operator, change.was, (*change.notes, *_notes(old, new, pairs)), change.tables)
    return change


def is_same_state(old: OperatorRecord, new: OperatorRecord) -> bool:
    """Tell whether an operator can continue with its state unchanged.

    Names may differ, and so may the expressions of projections below the operator.
    """
    one, other = old.shape, new.shape
    assert one is not None
    assert other is not None
    if old.tables != new.tables or old.hash_columns != new.hash_columns:
        return False
    if key_forms(one) != key_forms(other):
        return False
    # What the query calls window bounds is no matter of the state.
    if any(changed.field != "bounds" for changed in changed_settings(settings_of(one), settings_of(other))):
        return False
    return any(_items(one, form) == _items(other, form) for form in (value_form, expression_form))


def _items(shape: OperatorShape, form: Callable[[ShapeItem], str]) -> list[tuple[object, ...]]:
    return sorted((i.kind, i.input, form(i), i.type, repr(sorted(i.columns.items()))) for i in shape.items)


def _are_swapped(old: OperatorShape, new: OperatorShape, pairs: Pairs) -> bool:
    """Tell whether an operator that stores rows of several inputs has the same inputs in another order."""
    settings = settings_of(new)
    if not settings.has_inputs and not isinstance(settings, SetOperationState):
        return False
    before = [(p.input, p.source, steps_form(p.steps)) for p in old.paths]
    after = [(p.input, _old_name(p.source, pairs), steps_form(p.steps)) for p in new.paths]
    if isinstance(settings, SetOperationState):
        # Its sides are put together before.
        before, after = ([(n, *path[1:]) for n, path in enumerate(paths)] for paths in (before, after))
    # By what they read and how it is filtered, or by what they read alone.
    for parts in (slice(1, 3), slice(1, 2)):
        one, other = (sorted((p[0], p[parts]) for p in paths) for paths in (before, after))
        if one != other and sorted(p for _, p in one) == sorted(p for _, p in other):
            return True
    return False


def _unlike_inputs(old: OperatorRecord, new: OperatorRecord, pairs: Pairs, unmatched: Collection[str]) -> str | None:
    """Return the reason why retractions of the new inputs may not match rows of the old inputs, if there is one."""
    assert old.shape is not None
    assert new.shape is not None
    for index in _changing(new.shape) | _changing(old.shape):
        before, after = (_paths(r.shape.paths, index) for r in (old, new) if r.shape is not None)
        # It may have the name of another one that the job had.
        if anew := [source for source, _ in after if source in unmatched]:
            return f"its input takes rows back, and {anew[0]} begins anew: its rows would come once more"
        renamed = [(_old_name(source, pairs), steps) for source, steps in after]
        if renamed != before:
            return f"{_TAKES_BACK}: it reads or filters otherwise"
        # The rule for ties below does not change rows that are stored there.
        was = {i.name: _form_by_columns(i) for i in _columns(old.shape, index)}
        if any(was.get(i.name, _form_by_columns(i)) != _form_by_columns(i) for i in _columns(new.shape, index)):
            return f"{_TAKES_BACK}: columns are made otherwise"
        if any(_is_of_others(item, old.shape) for item in new.shape.of_kind("aggregate")):
            return f"{_TAKES_BACK}: columns are made otherwise"
    return None


def _is_of_others(item: ShapeItem, old: OperatorShape) -> bool:
    """Return whether an aggregate has the same text as one of the job, although columns in it are computed differently now."""
    before = old.of_kind("aggregate")
    is_new = all(_form_by_columns(o) != _form_by_columns(item) for o in before)
    return is_new and any(expression_form(o) == expression_form(item) for o in before)


def _form_by_columns(item: ShapeItem) -> str:
    """Return the form of an item's value without the order of arrival, as it is in a job in which columns decide ties."""
    return text_form(without_arrival(item.value))


def _columns(shape: OperatorShape, index: int) -> Iterator[ShapeItem]:
    """Yield the columns that an operator stores of the rows of an input."""
    return (item for item in shape.of_kind("column") if item.input == index)


def _changing(shape: OperatorShape) -> set[int]:
    """Return the indexes of the inputs that are changelogs."""
    return set(settings_of(shape).changing)


def _paths(paths: Iterable[RowPath], index: int) -> list[tuple[str, tuple[str, ...]]]:
    return [(p.source, steps_form(p.steps)) for p in paths if p.input == index]


def _old_name(source: str, pairs: Pairs) -> str:
    return pairs.get(source, source)


def _notes(old: OperatorRecord, new: OperatorRecord, pairs: Pairs) -> Iterator[str]:
    """Yield notes for people about an operator that continues."""
    assert old.shape is not None
    assert new.shape is not None
    if old.name != new.name:
        yield f"it was called {old.name}"
    for key, other in zip(old.shape.keys, new.shape.keys, strict=False):
        if key.name != other.name and key_form(old.shape, key) == key_form(new.shape, other):
            yield f"key {key.name} is called {other.name}"
    after = [(_old_name(p.source, pairs), steps_form(p.steps), p.input) for p in new.shape.paths]
    if after != [(p.source, steps_form(p.steps), p.input) for p in old.shape.paths]:
        yield f"it reads or filters otherwise from now on; {_NOT_AGAIN}"
    elif _items(old.shape, value_form) != _items(new.shape, value_form) and is_same_state(old, new):
        yield f"what it reads is made otherwise from now on; {_NOT_AGAIN}"
