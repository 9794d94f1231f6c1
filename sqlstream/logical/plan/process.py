"""Calls of process functions: the user's code over the rows of each key, with state and timers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal

from sqlstream.catalog import Column, ProcessFunction, SideOutputDeclaration, StateDeclaration
from sqlstream.duck.internal_columns import ARRIVED
from sqlstream.errors import Span
from sqlstream.logical.plan.expressions import Expression, Field, Item, Schema
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.growth import COUNTED_ANYWAY, Ends, Growth, all_end, ttl_hint
from sqlstream.logical.plan.node import FEW_VALUES, Keys, LateReads, Node, SingleInput, Stateless, UnwindowedNode
from sqlstream.logical.plan.settings import (
    NameSettings,
    NodeValues,
    ProcessInputSettings,
    ProcessSettings,
    ProcessStateSettings,
)
from sqlstream.logical.plan.stateful import DropsLateRows, StatefulNode, WithTimeToLive
from sqlstream.logical.plan.values import form, forms, named_forms, typed
from sqlstream.logical.plan.windows import growth_of_late_rows
from sqlstream.logical.plan.words import in_table, quoted_name, sql_items, sql_list, typed_columns
from sqlstream.units import NO_TIME, Duration, duration

# The event time of an emitted row: the time of the input row, or the timer, for which it was emitted.
ROWTIME = "rowtime"


@dataclass(frozen=True)
class ProcessInput:
    """How a function gets the rows of one input: by their keys, with these columns, and with their event time, if any.

    With `order`, whose first item is the event time, rows wait for the watermark and arrive in that order. Rows of a `broadcast`
    input have no keys, and are for all keys: they arrive before the rows of other inputs; with an order, before their rows of the
    same time.
    """

    alias: str
    keys: tuple[Expression, ...]
    columns: tuple[Item, ...]
    time: str | None = None
    order: tuple[Expression, ...] = ()
    broadcast: bool = False

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return (*self.keys, *(i.expression for i in self.columns), *self.order)

    def settings(self, name: str, *, by_arrival: bool) -> ProcessInputSettings:
        """Return the values that identify the input; `name` is the name of the function's table argument.

        With `by_arrival` rows that are equal in the order are in the order of arrival.
        """
        # An order includes the time.
        time = None if self.order else self.time
        columns = named_forms(self.columns)
        ties: Literal["columns", "arrival"] = "arrival" if by_arrival else "columns"
        return ProcessInputSettings(name, forms(self.keys), columns, self.broadcast, time, forms(self.order), ties)

    def __str__(self) -> str:
        by = "broadcast" if self.broadcast else f"by {sql_list(self.keys) or 'no key'}"
        order = f" order {sql_list(self.order)}" if self.order else ""
        at = f" at {self.time}" if self.time and not order else ""
        return f"{by}{at}{order} ({sql_items(self.columns)})"


@dataclass(frozen=True)
class Process(WithTimeToLive, UnwindowedNode, DropsLateRows):
    """Calls a user's function with the rows of its inputs, key by key, and emits the rows that the function emits.

    Emits the key columns, the columns of the function, and with `has_rowtime` the event time of the row, or of the timer, for
    which a row was emitted. If an input has an order, its rows reach the function when the watermark has passed them; a row
    behind the watermark is dropped and counted, and stored if `late_rows` names a table for it. Keeps the states and the timers
    of each key; a value that was not written for its time to live is forgotten. `ttl` is for states that declare none. Without
    keys the function has only the states that broadcast inputs write, of which every bucket has a copy.
    """

    node_kind: ClassVar[str] = "process"

    inputs: tuple[Node, ...]
    name: str
    function: ProcessFunction
    reads: tuple[ProcessInput, ...]
    arguments: tuple[Expression, ...]
    key_names: tuple[str, ...]
    has_rowtime: bool = False
    ttl: Duration | None = None
    late_rows: str | None = None
    # The name that the call sets itself; a view's name does not replace it.
    uid: str | None = None
    late_reads: LateReads | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def values(self) -> NodeValues:
        function = self.function
        settings = ProcessSettings(
            function.name,
            tuple(
                read.settings(argument.name, by_arrival=waits_by_arrival(self, index))
                for index, (argument, read) in enumerate(zip(function.tables, self.reads, strict=True))
            ),
            tuple(
                ProcessStateSettings(s.name, s.kind, s.type, s.key_type, s.broadcast, bool(self.ttl_of(s)))
                for s in function.states
            ),
            typed(function.outputs),
            tuple((s.name, form(a)) for s, a in zip(function.scalars, self.arguments, strict=True)),
            tuple((s.name, typed(s.columns)) for s in function.side_outputs),
            function.vectorized,
            function.changelog_mode,
            self.late_rows,
        )
        return NodeValues(self.node_kind, name=self.name, settings=settings)

    @property
    def children(self) -> tuple[Node, ...]:
        return self.inputs

    def _over(self, children: tuple[Node, ...]) -> Node:
        return replace(self, inputs=children)

    @property
    def label(self) -> str:
        return f'process function "{self.function.name}"'

    @property
    def description(self) -> str:
        function = self.function
        inputs = [f"{a.name} {read}" for a, read in zip(function.tables, self.reads, strict=True)]
        scalars = [f"{s.name} => {a.sql}" for s, a in zip(function.scalars, self.arguments, strict=True)]
        states = "".join(f"; {self._described(state)}" for state in function.states)
        sides = "".join(f"; side output {s.name} ({typed_columns(s.columns)})" for s in function.side_outputs)
        how = f" vectorized by {function.vectorized}" if function.vectorized else ""
        how += f" ({function.changelog_mode})" if function.changelog_mode else ""
        call = f"{function.name}({', '.join([*inputs, *scalars])}) emits {typed_columns(function.outputs)}"
        return f"Process{quoted_name(self.name)}{how} {call}{sides}{states}{in_table(self.late_rows)}"

    def _described(self, state: StateDeclaration) -> str:
        kind = f"broadcast {state.kind}" if state.broadcast else state.kind
        entry = f"{state.key_type} to " if state.key_type else ""
        return f"{kind} {state.name} {entry}{state.type}{' that expires' if self.ttl_of(state) else ''}"

    @property
    def title(self) -> str:
        names = (f"{r.alias or 'a subquery'}{' (broadcast)' if r.broadcast else ''}" for r in self.reads)
        return f"{self.label} over {' and '.join(names)}"

    @property
    def key_text(self) -> str:
        return ", ".join(self.key_names)

    @property
    def calls_text(self) -> str:
        emitted = ", ".join(c.name for c in self.function.outputs)
        for side in self.function.side_outputs:
            emitted += f"; {side.name}: {', '.join(c.name for c in side.columns)}"
        pairs = zip(self.function.scalars, self.arguments, strict=True)
        scalars = ", ".join(f"{s.name} = {a.sql}" for s, a in pairs)
        return f"{emitted} with {scalars}" if scalars else emitted

    @property
    def states_text(self) -> str:
        states = []
        for state in self.function.states:
            ttl = self.ttl_of(state)
            kind = {"value": "", "list": "list of ", "map": f"map of {state.key_type} to "}[state.kind]
            scope = "broadcast " if state.broadcast else ""
            expiry = f"expires after {duration(ttl)}" if ttl else "for ever"
            states.append(f"{state.name} ({scope}{kind}{state.type}, {expiry})")
        return ", ".join([*states, *(["timers"] if self.function.has_timers else [])])

    @property
    def emission(self) -> str:
        timers = ", and when its timers are due" if self.function.has_timers else ""
        timers += ", before or after the rows of a batch" if self.time_of_timers is not None else ""
        arrival = "the watermark passes a row" if self.in_order else "a row arrives"
        return f"rows of the function, when {arrival}{timers}"

    @property
    def time_inputs(self) -> tuple[Node, ...]:
        """The inputs with an event time (broadcast inputs only if they have an ORDER BY); if there are none, the keyed inputs."""
        timed = [index for index, read in enumerate(self.reads) if read.order or (read.time and not read.broadcast)]
        return tuple(self.inputs[index] for index in timed or self.keyed_inputs)

    @property
    def reads_time(self) -> bool:
        return self.function.has_timers or any(read.time is not None for read in self.reads)

    @property
    def time_of_timers(self) -> str | None:
        """The event-time column of its rows, if the function may set event-time timers, and gets its rows as they arrive."""
        if self.in_order or not (self.function.has_timers and self.has_rowtime):
            return None
        return next((read.time for read in self.reads if read.time is not None and not read.broadcast), None)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return self.key_names

    @property
    def keyed_inputs(self) -> tuple[int, ...]:
        return tuple(index for index, read in enumerate(self.reads) if not read.broadcast)

    @property
    def keys_by_name(self) -> tuple[tuple[str, tuple[Expression, ...]], ...]:
        keys = [self.reads[index].keys for index in self.keyed_inputs]
        return tuple(zip(self.key_names, zip(*keys, strict=True), strict=True)) if self.key_names else ()

    @property
    def key_ttl(self) -> Duration:
        """0, since each state has its own."""
        return NO_TIME

    @property
    def has_processing_timers(self) -> bool:
        return self.function.has_timers

    @property
    def marks_late_rows(self) -> bool:
        """True if rows have an event time: a row that is emitted for a late row is late."""
        return self.time_type is not None

    @property
    def leaving_time(self) -> str | None:
        return None

    @property
    def without_key(self) -> str:
        return "rows are spread over all tasks"

    @property
    def emits_late(self) -> bool:
        """True without an order: then the function gets late rows, too."""
        return not self.in_order

    @property
    def drops_late_rows(self) -> bool:
        return self.in_order

    @property
    def emits_its_rows(self) -> bool:
        return False

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(table.name for table in self.function.tables)

    def late_columns(self, index: int) -> Schema:
        """Return the columns of an input row that the function gets: the keys, then the columns that it asks for."""
        read = self.reads[index]
        keys = {(k.column or "").lower(): Field(k.column or "", k.type) for k in read.keys}
        own = (Field(i.name, i.expression.type) for i in read.columns if i.name.lower() not in keys)
        return (*keys.values(), *own)

    @property
    def depends_on_expiry(self) -> bool:
        """Whether values expire, and the function can see expired ones or reads the rows of operators.

        Over tables alone a batch query can call the function at the times of the job's batches.
        """
        sees_expired = any(s.visible and self.ttl_of(s) for s in self.function.states)
        reads_operators = any(isinstance(n, StatefulNode) for below in self.inputs for n in walk(below))
        return self.forgets_keys and (sees_expired or reads_operators)

    def growth(self, ends: Ends) -> Growth | None:
        if self.state_growth is None or all_end(self, ends):
            return None
        if not self.keeps_every_value:
            return Growth("LATE_ROWS", self.state_growth, COUNTED_ANYWAY)
        where = "when a broadcast row says so" if self.growth_of_lists else "in a method on_timer"
        hint = f'Let values expire: state(ttl="1 d"), or {ttl_hint(self.function.name)}. Or clear them {where}.'
        return Growth(self.label, self.state_growth, hint)

    @cached_property
    def expressions(self) -> tuple[Expression, ...]:
        return (*(e for read in self.reads for e in read.expressions), *self.arguments)

    @cached_property
    def schema(self) -> Schema:
        return self.schema_of(self.function.outputs)

    def schema_of(self, emitted: Iterable[Column]) -> Schema:
        """Return the columns of an output: the keys, then the columns `emitted`, then the event time, if there is one."""
        keys = tuple(Field(n, k.type) for n, k in zip(self.key_names, self.keys, strict=True))
        own = tuple(Field(c.name, c.type) for c in self.function.beside(self.key_names, emitted))
        return (*keys, *own, *((Field(ROWTIME, self.time_type),) if self.time_type else ()))

    @cached_property
    def _keyed(self) -> int:
        """The index of the first input that is not broadcast; all such inputs agree in the types of keys, order and time."""
        return next(index for index, read in enumerate(self.reads) if not read.broadcast)

    @property
    def keys(self) -> tuple[Expression, ...]:
        """The keys, as expressions over the first input that is not broadcast."""
        return self.reads[self._keyed].keys

    @property
    def in_order(self) -> bool:
        """Whether the function gets the rows of a key in the order of event time."""
        return bool(self.reads[self._keyed].order)

    @cached_property
    def time_type(self) -> str | None:
        """The type of the event time of the result, None if there is none; a changelog never has one."""
        if self.function.changelog_mode or not self.has_rowtime:
            return None
        time = self.reads[self._keyed].time
        return next((f.type for f in self.inputs[self._keyed].schema if f.name == time), None)

    @property
    def times_read(self) -> tuple[tuple[int, str], ...]:
        return tuple((index, read.time) for index, read in enumerate(self.reads) if read.time is not None)

    @property
    def time_attributes(self) -> tuple[str, ...]:
        return (ROWTIME,) if self.time_type else ()

    @property
    def never_late(self) -> bool:
        """Never: the function may get late rows, and what it emits for them is late."""
        return False

    @cached_property
    def changelog_origin(self) -> Node | None:
        """This node if the function declares a changelog mode, else None, even over a changelog."""
        return self if self.function.changelog_mode else None

    @cached_property
    def unique_keys(self) -> Keys:
        return (frozenset(self.key_names),) if self._keeps_result else ()

    @property
    def grows(self) -> bool:
        return not self._keeps_result or self.forgets

    # -- state

    @property
    def _keeps_result(self) -> bool:
        """Whether the operator stores the result row of each key, which the next one replaces."""
        return self.function.changelog_mode == "upsert"

    def ttl_of(self, state: StateDeclaration) -> Duration:
        """Return the time to live of a state (0: for ever): its own, else the time to live of the node."""
        return state.ttl if state.ttl is not None else self.ttl or NO_TIME

    @property
    def forgets_keys(self) -> bool:
        return any(map(self.ttl_of, self.function.keyed_states))

    @property
    def _lasting(self) -> tuple[StateDeclaration, ...]:
        return tuple(s for s in self.function.keyed_states if not self.ttl_of(s))

    @cached_property
    def state_bound(self) -> str:
        if not self.function.states and not self.function.has_timers and not self.in_order and not self._keeps_result:
            return "it keeps no state"
        parts = ["watermark: a row waits until the watermark has passed it"] if self.in_order else []
        if self.late_rows is not None:
            parts.append("late rows are kept")
        if self._keeps_result:
            parts.append("the row of each key in the result, until the function retracts it")
        if self._lasting:
            names = ", ".join(s.name for s in self._lasting)
            parts.append(
                f"what the function clears, of {names}"
                if self.function.has_timers
                else f"nothing: {self._growth_of_keys}"
                if self._growth_of_keys
                else f"the values of the key, for {names}"
            )
        shared = [s.name for s in self._lasting_broadcast if s.kind != "list"]
        if self.growth_of_lists:
            parts.append(f"nothing: {self.growth_of_lists}")
        if shared:
            parts.append(f"what broadcast rows write to {', '.join(shared)}, in every bucket")
        forgetting = [s for s in self.function.states if self.ttl_of(s)]
        parts += [f"time to live of {s.name}: {duration(self.ttl_of(s))}" for s in forgetting]
        if self.function.has_timers:
            parts.append("timers go when they are due")
        return "; ".join(parts)

    @cached_property
    def state_growth(self) -> str | None:
        return "; ".join(self._growths) or growth_of_late_rows(self.late_rows)

    @property
    def keeps_every_value(self) -> bool:
        """Whether its states grow without a bound."""
        return bool(self._growths)

    @property
    def _growths(self) -> list[str]:
        return [growth for growth in (self._growth_of_keys, self.growth_of_lists) if growth is not None]

    @property
    def _lasting_broadcast(self) -> tuple[StateDeclaration, ...]:
        return tuple(s for s in self.function.broadcast_states if not self.ttl_of(s))

    @cached_property
    def growth_of_lists(self) -> str | None:
        """How its broadcast lists grow without a bound, None if there are none. Broadcast maps count as bounded by their keys."""
        names = [s.name for s in self._lasting_broadcast if s.kind == "list"]
        return f"every bucket keeps what broadcast rows append to {', '.join(names)}" if names else None

    @cached_property
    def _growth_of_keys(self) -> str | None:
        if not (self._lasting or self._keeps_result) or self.function.has_timers:
            return None
        if all(k.type in FEW_VALUES for k in self.keys) and not any(s.kind != "value" for s in self._lasting):
            return None
        names = [s.name for s in self._lasting] + (["the row of the result"] if self._keeps_result else [])
        return f"it keeps {', '.join(names)} for every key"


@dataclass(frozen=True)
class SideOutputRead(SingleInput, Stateless, UnwindowedNode):
    """Emits the rows of a side output of the process function below, with key columns and event time as in its result.

    The function runs once for all its outputs. Keeps no state of its own.
    """

    node_kind: ClassVar[str] = "side_output_read"

    name: str
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def values(self) -> NodeValues:
        return NodeValues(self.node_kind, settings=NameSettings(self.name))

    @property
    def process(self) -> Process:
        """The call of the process function."""
        assert isinstance(self.input, Process)
        return self.input

    @property
    def declaration(self) -> SideOutputDeclaration:
        """The declaration of the side output in the function's class."""
        return next(s for s in self.process.function.side_outputs if s.name == self.name)

    @property
    def label(self) -> str:
        return f'side output "{self.name}"'

    @property
    def description(self) -> str:
        return f"SideOutput {self.name}"

    @property
    def effect(self) -> str:
        return self.label

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return ()

    @cached_property
    def schema(self) -> Schema:
        return self.process.schema_of(self.declaration.columns)

    @property
    def time_attributes(self) -> tuple[str, ...]:
        return self.process.time_attributes

    @property
    def never_late(self) -> bool:
        return self.process.never_late

    @cached_property
    def changelog_origin(self) -> Node | None:
        return self.process.changelog_origin

    @property
    def unique_keys(self) -> Keys:
        return ()


def waits_by_arrival(node: Process, index: int) -> bool:
    """Return whether an input has an ORDER BY, for which its rows wait, and the order of arrival decides ties in it."""
    waits = bool(node.reads[index].order)
    return waits and any(f.name == ARRIVED.name for f in node.inputs[index].schema)
