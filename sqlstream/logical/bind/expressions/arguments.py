"""Arguments of the user's functions: binding turns named arguments and default values into positional ones."""

from __future__ import annotations

from sqlglot import exp

from sqlstream.catalog import DuckFunction
from sqlstream.errors import BindError, SourceText, missing
from sqlstream.sql.spans import span_of
from sqlstream.sql.statements import parse_expression


def order_arguments(call: exp.Anonymous, function: DuckFunction, source: SourceText) -> None:
    """Change a call in place so that it has one argument per parameter, in order, from positional and named ones and defaults.

    A call with too many arguments stays as it is, and DuckDB refuses it. Raises BindError at the argument that does not fit, and
    for a parameter without a value.
    """
    arguments = list(call.expressions)
    named = [a for a in arguments if isinstance(a, exp.Kwarg | exp.PropertyEQ)]
    positional = arguments[: len(arguments) - len(named)]
    if (not named and len(arguments) >= len(function.names)) or len(positional) > len(function.names):
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
