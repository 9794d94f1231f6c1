"""Declares scalar and table functions: from a Python function or class to a `Function` of the catalog."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

from sqlstream.catalog import Function, FunctionKind
from sqlstream.functions.declaration import FunctionDeclaration, called_method, plain_function
from sqlstream.functions.decorators import Decoration, FunctionOptions, decoration_of
from sqlstream.functions.scalar import ScalarDeclaration
from sqlstream.functions.table import TableFunctionDeclaration

_KINDS: dict[FunctionKind, type[FunctionDeclaration]] = {"scalar": ScalarDeclaration, "table": TableFunctionDeclaration}


def declare(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    returns: str | type | None = None,
    parameters: Mapping[str, str] | None = None,
    deterministic: bool | None = None,
    vectorized: bool | None = None,
    root: str | None = None,
) -> Function:
    """Return the catalog's entry of a Python function or class; options passed here override its decorator's.

    Without a decorator, a generator function is a table function, everything else a scalar function. Errors show files relative
    to `root` (default: the current folder). Raises BindError or UnsupportedError, with the position.
    """
    method = called_method(function)
    inner = plain_function(getattr(function, method) if method else function)
    decoration = decoration_of(function) or Decoration(
        "table" if inspect.isgeneratorfunction(inner) else "scalar", FunctionOptions()
    )
    decorator_options = decoration.options
    options = FunctionOptions(
        name or decorator_options.name,
        returns or decorator_options.returns,
        decorator_options.parameters if parameters is None else parameters,
        decorator_options.deterministic if deterministic is None else deterministic,
        decorator_options.vectorized if vectorized is None else vectorized,
    )
    return _KINDS[decoration.kind](function, inner, options, root or os.getcwd(), method).declared()
