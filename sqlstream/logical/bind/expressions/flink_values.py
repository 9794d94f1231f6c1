"""Flink's values where standard operators and casts have others in DuckDB: truncation, whole division, texts, DECIMAL, DATE.

As in `flink_functions`, a *form* is DuckDB SQL in which `_0`, `_1`, .. stand for operands.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from sqlglot import exp

from sqlstream.duck.sql import quote_text
from sqlstream.duck.types import INTEGERS
from sqlstream.logical.bind.expressions.decimals import decimal_of, quotient, quotient_type

# Returns the DuckDB type of a bound expression, None if it is not known.
TypeOf: TypeAlias = Callable[[exp.Expr], str | None]
# A form with its operands.
Form: TypeAlias = tuple[str, tuple[exp.Expr, ...]]

_FLOATS = {"FLOAT", "DOUBLE"}
_INSTANT = "TIMESTAMP WITH TIME ZONE"
# Calls whose results have no fraction.
_WHOLE = {"floor", "ceil", "ceiling", "trunc", "round"}
_SECONDS = "%Y-%m-%d %H:%M:%S"
_WHOLE_DAYS = {
    f"{unit}{s}" for unit in ("DAY", "WEEK", "MONTH", "QUARTER", "YEAR", "DECADE", "MILLENNIUM") for s in ("", "S")
} | {"CENTURY", "CENTURIES", "MILLENNIA"}
# Parts of a second that count from the second on; DuckDB's count from the minute on.
_PARTS = {"MILLISECOND": "millisecond(_0) % 1000", "MICROSECOND": "microsecond(_0) % 1000000"}


def rewritten(node: exp.Expr, type_of: TypeOf) -> Form | None:
    """Return the form of a bound operator or cast that has another value in Flink, None if both have the same."""
    match node:
        case exp.Cast():
            form = _cast(node, type_of)
            return (form, (node.this,)) if form is not None else None
        case exp.Div():
            return _decimal_division(node, type_of)
        case exp.Extract():
            form = _PARTS.get(node.name.upper())
            return (form, (node.expression,)) if form is not None else None
        case exp.SimilarTo() if not isinstance(node.parent, exp.Escape):
            return _similar(node)
        case exp.Add() | exp.Sub():
            return _moved_date(node, type_of)
        case _:
            return None


def divides_integers(node: exp.Div, type_of: TypeOf) -> bool:
    """Return whether both operands of a division are integers."""
    return type_of(node.this) in INTEGERS and type_of(node.expression) in INTEGERS


def cut(value: str, type: str, target: str, cast: str = "CAST") -> str | None:
    """Return the SQL that cuts the fraction of `value`, of a number type, off; None if it has none or `target` is no integer.

    >>> cut('"x"', "DOUBLE", "INTEGER")
    'CAST(trunc("x") AS INTEGER)'
    """
    decimal = decimal_of(type)
    if target in INTEGERS and (type in _FLOATS or (decimal is not None and decimal[1] > 0)):
        return f"{cast}(trunc({value}) AS {target})"
    return None


# -- casts


def as_number(value: exp.Expr, target: str, type_of: TypeOf) -> str:
    """Return the form of a bound text as a number of a type, NULL if it is none; a fraction of an integer is cut off."""
    form = _to_integer(value, target, "TRY_CAST", type_of) if target in INTEGERS else None
    return form or f"TRY_CAST(_0 AS {target})"


def _cast(node: exp.Cast, type_of: TypeOf) -> str | None:
    to = node.args["to"]
    target = str(to.args.get("kind") or "")
    cast = "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
    if target in INTEGERS:
        return _to_integer(node.this, target, cast, type_of)
    if target != "VARCHAR":
        return None
    text = _to_text(node.this, type_of)
    length = to.meta.get("length")
    if length is None:
        return text
    text = text or "CAST(_0 AS VARCHAR)"
    return f"rpad({text}, {length}, ' ')" if to.meta.get("padded") else f"left({text}, {length})"


def _to_integer(value: exp.Expr, target: str, cast: str, type_of: TypeOf) -> str | None:
    inner = value.unnest()
    if isinstance(inner, exp.Literal):
        # A text is cut in front of its point; a number has a type.
        if "." not in inner.name:
            return None
    elif isinstance(inner, exp.Anonymous) and inner.name.lower() in _WHOLE and len(inner.expressions) == 1:
        return None
    type = type_of(value) or ""
    if type == "VARCHAR" and not isinstance(inner, exp.Column | exp.Literal):
        # What costs time, such as a value of JSON, is computed once.
        return f"{cast}(trunc({cast}(_0 AS DECIMAL(38, 19))) AS {target})"
    if type == "VARCHAR":
        whole = r"regexp_replace(_0, '^(\s*[+-]?)([0-9]*)[.][0-9]*\s*$', '\10\2')"
        return f"CASE WHEN contains(_0, '.') THEN {cast}({whole} AS {target}) ELSE {cast}(_0 AS {target}) END"
    return cut("_0", type, target, cast)


def _to_text(value: exp.Expr, type_of: TypeOf) -> str | None:
    inner = value.unnest()
    if isinstance(inner, exp.Literal) and inner.is_string:
        return None
    match type_of(value):
        case "BOOLEAN":
            return "upper(CAST(_0 AS VARCHAR))"
        case "TIMESTAMP":
            return _time_text("_0", _precision(inner))
        case type if type == _INSTANT:
            return _time_text("CAST(_0 AS TIMESTAMP)", _precision(inner))
        case "FLOAT" | "DOUBLE":
            return _FLOAT_TEXT
        case "INTERVAL":
            return _INTERVAL_TEXT
        case _:
            return None


def as_text(value: exp.Expr, type_of: TypeOf) -> str:
    """Return the form of the text of a bound value."""
    return _to_text(value, type_of) or "CAST(_0 AS VARCHAR)"


def _precision(value: exp.Expr) -> int | None:
    """Return the digits of seconds that a cast or a literal declares."""
    declared = value.args["to"].meta.get("precision") if isinstance(value, exp.Cast) else None
    return int(declared) if declared is not None else None


def _time_text(value: str, digits: int | None) -> str:
    """Return the text of a TIMESTAMP with so many digits of a second; without a number with 3, or 6 if 3 are too few."""
    millis, micros = (f"strftime({value}, '{_SECONDS}.{unit}')" for unit in ("%g", "%f"))
    if digits is None:
        return f"CASE WHEN microsecond({value}) % 1000 = 0 THEN {millis} ELSE {micros} END"
    if digits == 0:
        return f"strftime({value}, '{_SECONDS}')"
    return {3: millis, 6: micros}.get(digits, f"left({micros}, {digits - 6})")


def _float_text() -> str:
    """Return the form of Java's text of a DOUBLE: with an exponent below 0.001, and from 10 million on."""
    text = "CAST(abs(_0) AS VARCHAR)"
    mantissa, exponent = f"split_part({text}, 'e', 1)", f"CAST(CAST(split_part({text}, 'e', 2) AS INTEGER) AS VARCHAR)"
    whole, fraction = f"split_part({text}, '.', 1)", f"split_part({text}, '.', 2)"
    large, small = f"rtrim({whole} || {fraction}, '0')", f"ltrim({fraction}, '0')"

    def digits(significant: str) -> str:
        return f"left({significant}, 1) || '.' || coalesce(nullif(substr({significant}, 2), ''), '0')"

    return (
        "CASE WHEN _0 = 0 OR (abs(_0) >= 0.001 AND abs(_0) < 10000000) THEN CAST(_0 AS VARCHAR)"
        " WHEN isnan(_0) THEN 'NaN' WHEN isinf(_0) THEN CASE WHEN _0 > 0 THEN 'Infinity' ELSE '-Infinity' END"
        " ELSE CASE WHEN _0 < 0 THEN '-' ELSE '' END ||"
        f" CASE WHEN contains({text}, 'e')"
        f" THEN {mantissa} || CASE WHEN contains({mantissa}, '.') THEN '' ELSE '.0' END || 'E' || {exponent}"
        f" WHEN abs(_0) >= 1 THEN {digits(large)} || 'E' || CAST(length({whole}) - 1 AS VARCHAR)"
        f" ELSE {digits(small)} || 'E-' || CAST(length({fraction}) - length({small}) + 1 AS VARCHAR) END END"
    )


def _interval_text() -> str:
    """Return the form of Flink's text of an INTERVAL: +1-03 of months, +0 00:01:30.000 of days and times."""
    months = "CAST(datepart('year', _0) * 12 + datepart('month', _0) AS BIGINT)"
    millis = "CAST(epoch_ms(_0) AS BIGINT)"
    of_months = (
        f"CASE WHEN {months} < 0 THEN '-' ELSE '+' END"
        f" || format('{{}}-{{:02d}}', abs({months}) // 12, abs({months}) % 12)"
    )
    parts = ", ".join(
        f"abs({millis}) // {unit}{f' % {within}' if within else ''}"
        for unit, within in ((86_400_000, 0), (3_600_000, 24), (60_000, 60), (1000, 60), (1, 1000))
    )
    of_days = (
        f"CASE WHEN {millis} < 0 THEN '-' ELSE '+' END || format('{{}} {{:02d}}:{{:02d}}:{{:02d}}.{{:03d}}', {parts})"
    )
    return f"CASE WHEN {months} <> 0 THEN {of_months} ELSE {of_days} END"


_FLOAT_TEXT = _float_text()
_INTERVAL_TEXT = _interval_text()


# -- operators


def _decimal_division(node: exp.Div, type_of: TypeOf) -> Form | None:
    operands = node.this, node.expression
    one, two = (type_of(operand) or "" for operand in operands)
    if not (one.startswith("DECIMAL") or two.startswith("DECIMAL")):
        return None
    first, second = decimal_of(one), decimal_of(two)
    if first is None or second is None:
        return None
    form = quotient("_0", first, "_1", second, quotient_type(first, second))
    return (form, operands) if form is not None else None


def _moved_date(node: exp.Add | exp.Sub, type_of: TypeOf) -> Form | None:
    """Return the form of a DATE that is moved by whole days, which stays a DATE."""
    one, two = node.this, node.expression
    date, interval = (two, one) if isinstance(node, exp.Add) and _is_of_days(one) else (one, two)
    if not _is_of_days(interval) or type_of(date) != "DATE":
        return None
    operator = "+" if isinstance(node, exp.Add) else "-"
    return f"CAST(_0 {operator} _1 AS DATE)", (date, interval)


def _is_of_days(value: exp.Expr) -> bool:
    """Return whether a value is an interval of whole days: INTERVAL '1' DAY, also with a sign or as a multiple."""
    inner = value.unnest()
    match inner:
        case exp.Interval():
            return inner.args.get("unit") is not None and inner.args["unit"].name.upper() in _WHOLE_DAYS
        case exp.Neg():
            return _is_of_days(inner.this)
        case exp.Mul():
            return _is_of_days(inner.this) or _is_of_days(inner.expression)
        case _:
            return False


def _similar(node: exp.SimilarTo) -> Form:
    pattern = node.expression.unnest()
    if isinstance(pattern, exp.Literal) and pattern.is_string:
        return f"regexp_full_match(_0, {quote_text(similar_pattern(pattern.name))})", (node.this,)
    escaped = r"regexp_replace(_1, '[.^$\\]', '\\\0', 'g')"
    computed = f"'(?s)' || replace(replace({escaped}, '%', '.*'), '_', '.')"
    return f"regexp_full_match(_0, {computed})", (node.this, node.expression)


def similar_pattern(pattern: str) -> str:
    """Return the regular expression of DuckDB for a pattern of SIMILAR TO, which has % and _ as LIKE has.

    >>> similar_pattern("a.c%(x|_)[_%.]")
    '(?s)a\\\\.c.*(x|.)[_%.]'
    """
    words = {"%": ".*", "_": "."}

    def word(match: re.Match[str]) -> str:
        text = match[0]
        return text if text[0] == "[" else words.get(text) or f"\\{text}"

    return "(?s)" + re.sub(r"\[[^\]]*\]|[%_.^$\\]", word, pattern)
