"""Instances of process functions in this process: opened once, used by one bucket after the other, and closed at the end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlstream.catalog import ProcessFunction, StateDeclaration
from sqlstream.duck import databases
from sqlstream.errors import JobError, OutageError, UserCodeError
from sqlstream.functions import pickling, types
from sqlstream.functions.codecs import decoded
from sqlstream.functions.invocation import is_outage, named, shown
from sqlstream.functions.process.advice import advice
from sqlstream.functions.process.api import NO_DEFAULT, DeclaredState
from sqlstream.functions.process.broadcast_states import (
    SharedDefaulting,
    SharedHandle,
    SharedList,
    SharedMap,
    SharedReducing,
    SharedValue,
)
from sqlstream.functions.process.implementation import Implementation
from sqlstream.functions.process.states import (
    AggregatingState,
    DefaultingState,
    Handle,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from sqlstream.functions.process.vectors import listing
from sqlstream.functions.process.yielded import classes_of, routing
from sqlstream.functions.source_locations import raised_at

# How many idle instances stay open.
MOST_IDLE = 32
# Why keyed states are not available: in methods of broadcast tables, and in classes that are vectorized by bucket.
_BROADCAST = (
    "is kept for each key, and rows of a broadcast table have no key: only state(broadcast=True) is there for them"
)
_BUCKET = "is a column of the table of states that the method gets and returns: a bucket has many keys"


class Instance:
    """An instance of the user's class, its methods, and the handles of its states.

    `handles` are the states of the current key, `shared` the states of all keys, both by name.
    """

    def __init__(self, function: ProcessFunction, arguments: tuple[str, ...]):
        self.function = function
        implementation: Implementation = pickling.unpack_class(function.name, function.pickled)
        self.implementation = implementation.over(function)
        self.handles: dict[str, Handle] = {}
        self.shared: dict[str, SharedHandle] = {}
        self._user_object = self._opened(self._values(arguments))
        self.methods: list[Callable[..., Any]] = [self._method(t.method) for t in function.tables]
        self.on_timer: Callable[..., Any] | None = self._method("on_timer") if function.has_timers else None
        if function.vectorized == "key":
            self.methods = list(map(listing, self.methods))
            self.on_timer = listing(self.on_timer) if self.on_timer else None
        self.aggregates = {name: one.opened() for name, one in self.implementation.aggregates.items()}
        self.handles = {s.name: self._handle(s) for s in function.keyed_states}
        self.shared = {s.name: self._shared(s) for s in function.broadcast_states}
        self._check_unassigned()
        self._user_object.__dict__.update(self._own)

    def _method(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._user_object, name)
        implementation = self.implementation
        return routing(method, classes_of(implementation.sides)) if name in implementation.yielding else method

    @property
    def _own(self) -> dict[str, Any]:
        """The states that the user's object has as attributes while rows of keys are processed, by name."""
        if self.function.vectorized == "bucket":
            return {**self.shared, DeclaredState.REASON: _BUCKET}
        return {**self.handles, **self.shared}

    def _handle(self, state: StateDeclaration) -> Handle:
        if state.name in self.aggregates:
            return AggregatingState(self.aggregates[state.name])
        reduce = getattr(self.implementation.python_class, state.name).reduce
        if reduce is not None:
            return ReducingState(reduce)
        match state.kind:
            case "value":
                default = getattr(self.implementation.python_class, state.name).default
                return ValueState() if default is NO_DEFAULT else DefaultingState(default)
            case "list":
                return ListState()
            case "map":
                return MapState()

    def _shared(self, state: StateDeclaration) -> SharedHandle:
        reduce = getattr(self.implementation.python_class, state.name).reduce
        if reduce is not None:
            return SharedReducing(reduce)
        match state.kind:
            case "value":
                default = getattr(self.implementation.python_class, state.name).default
                return SharedValue() if default is NO_DEFAULT else SharedDefaulting(default)
            case "list":
                return SharedList()
            case "map":
                return SharedMap()

    @contextmanager
    def without_key(self) -> Iterator[None]:
        """Let methods of broadcast tables run in the context: they can write broadcast states, and have no keyed states."""
        own = vars(self._user_object)
        for name in self.handles:
            own.pop(name, None)
        own[DeclaredState.REASON] = _BROADCAST
        for handle in self.shared.values():
            handle.writes = True
        try:
            yield
            self.check_states()
        finally:
            for handle in self.shared.values():
                handle.writes = False
            del own[DeclaredState.REASON]
            own.update(self._own)

    def check_states(self) -> None:
        """Raise JobError if the class has replaced a state by another object, whose value would be lost."""
        own = vars(self._user_object)
        for name, handle in (self.handles | self.shared).items():
            # Without a current key, keyed states are not there.
            if own.get(name, handle) is not handle:
                raise self.failed(
                    f'replaced its state "{name}" by {shown(own[name], 200)}', hint=self._changed_by(name)
                )

    def _check_unassigned(self) -> None:
        """Raise JobError if `__init__` or `open` has assigned something to a state: no key would have it."""
        own = vars(self._user_object)
        for name in self.handles | self.shared:
            if name in own:
                hint = f"Leave it out: what a state holds begins with the first row. {self._changed_by(name)}"
                raise self.failed(
                    f'assigned {shown(own[name], 200)} to its state "{name}" in __init__ or open', hint=hint
                )

    def _changed_by(self, name: str) -> str:
        """Return a sentence that says how to change a state."""
        [state] = (s for s in self.function.states if s.name == name)
        if self.function.vectorized == "bucket" and not state.broadcast:
            return f'Return its new values: column "{name}" of the second table of return rows, state.'
        handle = (self.handles | self.shared)[name]
        change = {"value": "value = ..", "list": "append(..)", "map": "put(key, ..)"}[state.kind]
        if isinstance(handle, (ReducingState, AggregatingState)):
            change = "add(..)"
        return f"It changes by what it offers: self.{name}.{change}, self.{name}.clear()."

    def _values(self, arguments: tuple[str, ...]) -> dict[str, Any]:
        """Return the values of the call's constants, which are SQL, by parameter."""
        if not arguments:
            return {}
        items = ", ".join(f"{sql} AS c{i}" for i, sql in enumerate(arguments))
        with databases.passing() as con:
            row = con.sql(f"SELECT {items}").to_arrow_table()
        hints = self.implementation.scalars
        return {
            scalar.name: decoded(types.codec(scalar.type, hints[scalar.name]), column)[0]
            for scalar, column in zip(self.function.scalars, row.columns, strict=True)
        }

    def _opened(self, values: dict[str, Any]) -> Any:
        try:
            instance = self.implementation.python_class(**values)
            if (opening := getattr(instance, "open", None)) is not None:
                opening()
        except (Exception, SystemExit) as error:
            raise self.raised(error, "could not be opened, it ") from error
        return instance

    def close(self) -> None:
        """Call `close` of the instance, if there is one, and close its aggregates. Raises JobError for any error in it."""
        closing = getattr(self._user_object, "close", None)
        try:
            if closing is not None:
                closing()
        except (Exception, SystemExit) as error:
            raise self.raised(error, "could not be closed, it ") from error
        for one in self.aggregates.values():
            one.close()

    def raised(
        self, error: BaseException, when: str = "", about: str = "", hint: str | None = None, row: Any = None
    ) -> JobError:
        """Return the error for an exception of the user's code; `about` describes the key and the row, `row` is for the hint."""
        location = raised_at(error.__traceback__, self.implementation.root)
        hint = hint or advice(error, self.handles | self.shared, row)
        return self.failed(f"{when}raised {named(error)}", about, location, hint, outage=is_outage(error))

    def failed(
        self, what: str, about: str = "", location: str | None = None, hint: str | None = None, *, outage: bool = False
    ) -> JobError:
        """Return an error whose text is `what`; `about` describes the key and the row, `location` is `file:line`."""
        detail = f" --> {location or self.implementation.location}" + (f"\n{about}" if about else "")
        kind = OutageError if outage else UserCodeError
        return kind(f'process function "{self.function.name}" {what}', detail=detail, hint=hint)


# The pickled class, the constants of a call, and the function of the call: its rows have the columns of the call's tables.
_Key = tuple[bytes, tuple[str, ...], ProcessFunction]
_idle: list[tuple[_Key, Instance]] = []
_lock = threading.RLock()


@contextmanager
def instance_of(function: ProcessFunction, arguments: tuple[str, ...]) -> Iterator[Instance]:
    """Yield an instance for the caller alone: an idle one or a new one. Then it is idle again; after an error it is closed."""
    key = function.pickled, arguments, function
    with _lock:
        location = next((i for i, (other, _) in enumerate(_idle) if other == key), None)
        instance = _idle.pop(location)[1] if location is not None else None
    if instance is None:
        instance = Instance(function, arguments)
    try:
        yield instance
    except BaseException:
        # It may be in an inconsistent state, and is not used again.
        with contextlib.suppress(JobError):
            instance.close()
        raise
    with _lock:
        _idle.append((key, instance))
        old = _idle[:-MOST_IDLE]
        del _idle[:-MOST_IDLE]
    for _, surplus in old:
        surplus.close()


def close_instances(pickled: bytes) -> None:
    """Close the idle instances of a pickled class. Raises the first JobError after all are closed."""
    with _lock:
        entries = [entry for entry in _idle if entry[0][0] == pickled]
        _idle[:] = [entry for entry in _idle if entry[0][0] != pickled]
    failed: list[JobError] = []
    for _, instance in entries:
        try:
            instance.close()
        except JobError as error:
            failed.append(error)
    if failed:
        raise failed[0]


def close_all() -> None:
    """Close all idle instances of this process, which is about to end. Nobody is left to receive errors."""
    with _lock:
        entries, _idle[:] = list(_idle), []
    for _, instance in entries:
        with contextlib.suppress(JobError):
            instance.close()
