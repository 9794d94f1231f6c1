"""Pickles functions by value: a process without the user's files gets the function back from the bytes."""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle
from cloudpickle.cloudpickle import _DYNAMIC_CLASS_TRACKER_BY_ID as _CLASSES

from sqlstream.errors import JobError
from sqlstream.functions.invocation import Invocation
from sqlstream.functions.source_locations import is_user_file, unwrapped


class NotPicklable(Exception):
    """An object cannot be pickled. `name` is the global or enclosing variable that holds it; None if it is unknown."""

    def __init__(self, name: str | None, reason: str):
        super().__init__(reason)
        self.name = name


def pack(call: Invocation) -> bytes:
    """Pickle a call by value, with all of the user's code that it needs: helpers, globals, classes, sibling modules.

    Installed packages are pickled by name. Raises NotPicklable.
    """
    with _by_value():
        try:
            return _dumps(call)
        except Exception as error:
            raise NotPicklable(_culprit(call.function, set()), str(error)) from error


@functools.lru_cache(maxsize=512)
def unpack(name: str, pickled: bytes) -> Any:
    """Return the call that `pack` pickled. The result is cached: a process unpickles a call once.

    Raises JobError, which names the function, for example if an installed package is missing in this process.
    """
    try:
        return cloudpickle.loads(pickled)
    except Exception as error:
        reason = f"{type(error).__qualname__}: {error}"
        raise JobError(f'function "{name}" cannot be loaded in this process: {reason}') from error


def pack_class(value: object) -> bytes:
    """Pickle a class, or an object that holds one, by value, with all of the user's code that it needs. Raises NotPicklable."""
    with _by_value():
        try:
            return _dumps(value)
        except Exception as error:
            raise NotPicklable(None, str(error)) from error


@functools.lru_cache(maxsize=64)
def unpack_class(name: str, pickled: bytes) -> Any:
    """Return the object that `pack_class` pickled; cached like the result of `unpack`. Raises JobError as `unpack` does."""
    try:
        return cloudpickle.loads(pickled)
    except Exception as error:
        reason = f"{type(error).__qualname__}: {error}"
        raise JobError(f'class "{name}" cannot be loaded in this process: {reason}') from error


# Functions of cloudpickle that rebuild a class; their last argument but one is the id by which it is tracked.
_MAKE_CLASS = (cloudpickle.cloudpickle._make_skeleton_class, cloudpickle.cloudpickle._make_skeleton_enum)
# Returns the function that rebuilds a code object, and its arguments.
_WITHOUT_FILE = cloudpickle.cloudpickle._code_reduce


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        # A cached function would be pickled by name, which exists nowhere else. The cache itself starts empty.
        if isinstance(obj, functools._lru_cache_wrapper) and is_user_file(_file(obj.__wrapped__)):
            limits = obj.cache_parameters()
            return _cached, (obj.__wrapped__, limits["maxsize"], limits["typed"])
        if isinstance(obj, CodeType):
            # cloudpickle 3.1.3 leaves out the name of the file, which errors show.
            return _code_of_file, (obj.co_filename, *_WITHOUT_FILE(obj))
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and isinstance(reduced, tuple) and reduced[0] in _MAKE_CLASS:
            # With its id, a class that is unpickled in this process would replace the user's own.
            factory, (*arguments, _, extra), *rest = reduced
            return factory, (*arguments, None, extra), *rest
        return reduced


def _cached(function: Callable[..., Any], maxsize: int | None, typed: bool) -> Callable[..., Any]:
    return functools.lru_cache(maxsize, typed)(function)


def _code_of_file(file: str, make: Callable[..., CodeType], arguments: tuple[Any, ...]) -> CodeType:
    return make(*arguments).replace(co_filename=file)


def _file(function: Any) -> str:
    inner = unwrapped(function)
    return inner.__code__.co_filename if inner else ""


def _dumps(value: Any) -> bytes:
    buffer = io.BytesIO()
    before = {*_CLASSES}
    try:
        _Pickler(buffer).dump(value)
    finally:
        # Unpickling in this process must make a copy. cloudpickle would return the class itself, after it has put methods into it
        # that see only the globals that they use.
        for number in {*_CLASSES} - before:
            _CLASSES.pop(number, None)
    return buffer.getvalue()


@contextmanager
def _by_value() -> Iterator[None]:
    """Let cloudpickle pickle all of the user's modules by value within the block, not by name."""
    before = cloudpickle.list_registry_pickle_by_value()
    # While udfs/ is loaded, a module may be there under two names.
    added = {m.__name__: m for m in list(sys.modules.values()) if _is_user_module(m) and m.__name__ not in before}
    for module in added.values():
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added.values():
            cloudpickle.unregister_pickle_by_value(module)


def _is_user_module(module: object) -> bool:
    if not isinstance(module, ModuleType) or sys.modules.get(module.__name__) is not module:
        return False
    path = module.__dict__.get("__file__")
    if path is None:
        # A folder without __init__.py.
        return any(map(is_user_file, module.__dict__.get("__path__", ())))
    return isinstance(path, str) and path.endswith(".py") and is_user_file(path)


def _culprit(function: object, seen: set[int]) -> str | None:
    """Return the name of the first variable that cannot be pickled, also in helper functions; None if there is none."""
    inner = unwrapped(function)
    if inner is None or id(inner) in seen:
        return None
    seen.add(id(inner))
    for name, value in _variables(inner):
        try:
            _dumps(value)
        except Exception:
            return _culprit(value, seen) or name
    return None


def _variables(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name in _names(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield name, cell.cell_contents


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
