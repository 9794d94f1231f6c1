"""Compares a table that a job wrote with the batch answer, and finds the cause of each difference."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Condition, Relation, Relations, Select, quote_name
from sqlstream.jobs.verification.report import SHOWN, Difference, TableReport

Row = tuple[Any, ...]
# The most rows of each side that are compared one by one; rows beyond these stay unexplained.
_MOST = 100_000
_MISSING, _EXTRA, _CLOSE, _NUMBER = Relation("_missing"), Relation("_extra"), Relation("_close"), internal("number")
_ROW_ID = internal("rowid")
# The tolerances of `_alike`, relative and absolute.
_RELATIVE, _ABSOLUTE = 1e-6, 1e-9


@dataclass(frozen=True, slots=True)
class ComparedTables:
    """Tables of a DuckDB connection to compare: `actual`, which the job wrote, and `answers`, the batch answers by cause.

    The first answer, of the cause "", is over all rows; each further answer also applies the correction for its own cause. `keys`
    are the primary key of a table with one row per key, `looked_up` the columns whose values come from lookup tables.
    """

    name: str
    columns: tuple[str, ...]
    actual: Relation
    answers: Relations
    keys: tuple[str, ...] = ()
    looked_up: frozenset[str] = frozenset()


def compare(con: duckdb.DuckDBPyConnection, sides: ComparedTables) -> TableReport:
    """Return the differences between a table and the batch answer over all rows, by cause, with row counts and examples."""
    [first, *_] = sides.answers.values()
    by_cause = []
    before = first
    for cause, answer in sides.answers.items():
        if answer != before:
            by_cause.append(_between(con, cause, before, answer))
        before = answer
    for name, sql in ((_MISSING, _minus(before, sides.actual)), (_EXTRA, _minus(sides.actual, before))):
        con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")
    count, examples = _take_close(con)
    (missing, more_missing), (extra, more_extra) = _rows(con, _MISSING), _rows(con, _EXTRA)
    if sides.keys:
        missing, extra, close = _by_key(con, sides, before, missing, extra)
    else:
        missing, extra, close = _close(missing, extra)
    count += len(close)
    by_cause.append(Difference("float", count, count, _pairs([*examples, *close])))
    missing, extra, looked = _looked_up(sides, missing, extra)
    by_cause.append(Difference("lookup", len(looked), len(looked), _pairs(looked)))
    shown = [("-", row) for row in missing[:SHOWN]] + [("+", row) for row in extra[:SHOWN]]
    by_cause.append(Difference("unexplained", len(missing) + more_missing, len(extra) + more_extra, tuple(shown)))
    counts = [con.execute(f"SELECT count(*) FROM {t}").fetchall()[0][0] for t in (sides.actual, first)]
    differences = tuple(d for d in by_cause if d.missing or d.extra)
    return TableReport(sides.name, sides.columns, counts[0], counts[1], differences)


def _between(con: duckdb.DuckDBPyConnection, cause: str, before: Relation, after: Relation) -> Difference:
    """Return the rows by which a correction changes the batch answer."""
    counts, examples = [], []
    for sign, sql in (("-", _minus(before, after)), ("+", _minus(after, before))):
        counts.append(con.execute(f"SELECT count(*) FROM ({sql})").fetchall()[0][0])
        shown = con.execute(f"SELECT * FROM ({sql}) ORDER BY ALL LIMIT {SHOWN}").fetchall()
        examples += [(sign, row) for row in shown]
    return Difference(cause, counts[0], counts[1], tuple(examples))


def _minus(a: Relation, b: Relation) -> Select:
    return Select(f"FROM {a} EXCEPT ALL FROM {b}")


def _take_close(con: duckdb.DuckDBPyConnection) -> tuple[int, list[tuple[Row, Row]]]:
    """Remove pairs of rows that differ only in the last digits of floating-point columns; return their number and a few pairs.

    Rows that are equal in all other columns are paired in the order of the floating-point columns.
    """
    types = {str(name): type for name, type, *_ in con.execute(f"DESCRIBE {_MISSING}").fetchall()}
    floats = [quote_name(name) for name, type in types.items() if type in ("DOUBLE", "FLOAT")]
    if not floats:
        return 0, []
    exact = [quote_name(name) for name in types if quote_name(name) not in floats]
    by = f"PARTITION BY {', '.join(exact)} " if exact else ""
    number = f"row_number() OVER ({by}ORDER BY {', '.join(floats)}) AS {_NUMBER}"
    numbered = [f"(SELECT *, rowid AS {_ROW_ID}, {number} FROM {side})" for side in (_MISSING, _EXTRA)]
    same = [f"m.{name} IS NOT DISTINCT FROM e.{name}" for name in (_NUMBER, *exact)]
    alike = [_is_close(f"m.{name}", f"e.{name}") for name in floats]
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE {_CLOSE} AS SELECT m.{_ROW_ID} AS m, e.{_ROW_ID} AS e FROM {numbered[0]} AS m"
        f" JOIN {numbered[1]} AS e ON {' AND '.join([*same, *alike])}"
    )
    [(count,)] = con.execute(f"SELECT count(*) FROM {_CLOSE}").fetchall()
    first = f"(FROM {_CLOSE} ORDER BY m LIMIT {SHOWN})"
    sides = [
        con.execute(f"SELECT r.* FROM {first} AS c JOIN {side} AS r ON r.rowid = c.{own} ORDER BY c.m").fetchall()
        for side, own in ((_MISSING, "m"), (_EXTRA, "e"))
    ]
    for side, own in ((_MISSING, "m"), (_EXTRA, "e")):
        con.execute(f"DELETE FROM {side} WHERE rowid IN (SELECT {own} FROM {_CLOSE})")
    return count, list(zip(*sides, strict=True))


def _is_close(a: str, b: str) -> Condition:
    """Return the condition that two numbers are equal but for their last digits, as in `math.isclose`."""
    bound = f"greatest({_RELATIVE} * greatest(abs({a}), abs({b})), {_ABSOLUTE})"
    finite = f"isfinite({a}) AND isfinite({b}) AND abs({a} - {b}) <= {bound}"
    return Condition(f"({a} IS NOT DISTINCT FROM {b} OR ({finite}))")


def _rows(con: duckdb.DuckDBPyConnection, side: Relation) -> tuple[list[Row], int]:
    """Return the first _MOST rows of a side, and the number of the other rows."""
    [(count,)] = con.execute(f"SELECT count(*) FROM {side}").fetchall()
    rows = con.execute(f"SELECT * FROM {side} ORDER BY ALL LIMIT {_MOST}").fetchall()
    return rows, count - len(rows)


def _by_key(
    con: duckdb.DuckDBPyConnection, sides: ComparedTables, answer: Relation, missing: list[Row], extra: list[Row]
) -> tuple[list[Row], list[Row], list[tuple[Row, Row]]]:
    """Return the differing rows of a table with a key. The table may hold any of several rows that the query has for a key."""
    missing, extra, close = _close(missing, extra)
    by = ", ".join(map(quote_name, sides.keys))
    [(several,)] = con.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM {answer} GROUP BY {by} HAVING count(*) > 1)"
    ).fetchall()
    if several:
        indexes = [sides.columns.index(name) for name in sides.keys]
        held = {repr(row) for row in con.execute(f"SELECT {by} FROM {sides.actual}").fetchall()}
        missing = [row for row in missing if repr(tuple(row[index] for index in indexes)) not in held]
    return missing, extra, close


def _close(missing: Sequence[Row], extra: Sequence[Row]) -> tuple[list[Row], list[Row], list[tuple[Row, Row]]]:
    """Return the other rows of both sides, and the pairs that differ only in the last digits of floating-point numbers."""
    waiting: dict[str, list[Row]] = defaultdict(list)
    for row in missing:
        waiting[_exact(row)].append(row)
    pairs, rest = [], []
    for row in extra:
        candidates = waiting[_exact(row)]
        match = next((other for other in candidates if _alike(row, other)), None)
        if match is None:
            rest.append(row)
        else:
            candidates.remove(match)
            pairs.append((match, row))
    return [row for rows in waiting.values() for row in rows], rest, pairs


def _exact(value: object) -> str:
    """Return a value as text without its floating-point numbers."""
    if isinstance(value, float):
        return "~"
    if isinstance(value, dict):
        return repr({key: _exact(inner) for key, inner in value.items()})
    if isinstance(value, list | tuple):
        return repr([_exact(inner) for inner in value])
    return repr(value)


def _alike(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_alike, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_alike(a[key], b[key]) for key in a)
    return a == b


def _looked_up(
    sides: ComparedTables, missing: list[Row], extra: list[Row]
) -> tuple[list[Row], list[Row], list[tuple[Row, Row]]]:
    """Return the other rows of both sides, and the pairs that differ only in looked-up columns."""
    if not sides.looked_up:
        return missing, extra, []
    own = [index for index, name in enumerate(sides.columns) if name not in sides.looked_up]
    waiting: dict[str, list[Row]] = defaultdict(list)
    for row in missing:
        waiting[repr([row[index] for index in own])].append(row)
    pairs, rest = [], []
    for row in extra:
        candidates = waiting[repr([row[index] for index in own])]
        if candidates:
            pairs.append((candidates.pop(), row))
        else:
            rest.append(row)
    return [row for rows in waiting.values() for row in rows], rest, pairs


def _pairs(pairs: Sequence[tuple[Row, Row]]) -> tuple[tuple[str, Row], ...]:
    return tuple((sign, row) for a, b in pairs[:SHOWN] for sign, row in (("-", a), ("+", b)))
