"""Arguments of the user's functions: named ones and default values become positional ones before anything runs."""

from __future__ import annotations

from sqlglot import exp

from sqlstream.catalog import DuckFunction
from sqlstream.errors import BindError, SourceText, missing
from sqlstream.sql.spans import span_of
from sqlstream.sql.statements import parse_expression


def place_arguments(call: exp.Anonymous, function: DuckFunction, source: SourceText) -> None:
    """Give a call one argument per parameter, in order: `f(1, scale => 2)` and `f(1)` where Python has a default.

    A call with too many arguments is left to DuckDB to refuse. Raises BindError at the argument that does not fit.
    """
    given = list(call.expressions)
    named = [a for a in given if isinstance(a, exp.Kwarg | exp.PropertyEQ)]
    positional = given[: len(given) - len(named)]
    if (not named and len(given) >= len(function.names)) or len(positional) > len(function.names):
        return
    described = f'function "{function.name}"'
    if stray := next((a for a in positional if isinstance(a, exp.Kwarg | exp.PropertyEQ)), None):
        raise BindError("named arguments come last", span_of(stray, source), hint="Move it behind the others.")
    values: dict[str, exp.Expr] = dict(zip(function.names, positional, strict=False))
    for argument in named:
        name = next((n for n in function.names if n.lower() == argument.this.name.lower()), None)
        span = span_of(argument, source)
        if name is None:
            hint = missing("parameter", argument.this.name, function.names)
            raise BindError(f'{described} has no parameter "{argument.this.name}"', span, hint=hint)
        if name in values:
            raise BindError(f'parameter "{name}" of {described} is given twice', span)
        values[name] = argument.expression
    for name, default in zip(function.names, function.defaults, strict=True):
        if name not in values:
            if default is None:
                hint = f"parameters: {', '.join(function.names)}"
                raise BindError(f'{described} needs a value for "{name}"', span_of(call, source), hint=hint)
            values[name] = _literal(default, call)
    call.set("expressions", [values[name] for name in function.names])


def _literal(default: str, call: exp.Anonymous) -> exp.Expr:
    literal = parse_expression(SourceText("default", default))
    for node in literal.walk():
        node.meta.update(call.meta)
    return literal
