"""Charts of results with two columns, made of characters: bars for names, a line for numbers and times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import duckdb

from sqlstream.duck.sql import quote_name
from sqlstream.errors import UsageError
from sqlstream.session.texts import is_number, printable

HEIGHT = 15
# More names than that are a line each for nobody; more points are closer than a dot.
_MOST_BARS, _MOST_POINTS = 50, 100_000
_LONGEST_NAME = 24
_EIGHTHS = " ▏▎▍▌▋▊▉█"
# The dots of a Braille character, by row and column.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def chart(relation: duckdb.DuckDBPyRelation, width: int) -> Iterator[str]:
    """Yield the lines of a chart of a relation's two columns, so many characters wide. Rows with NULL are left out.

    Raises UsageError when the second column has no numbers.
    """
    x, y = map(quote_name, relation.columns)
    x_type, y_type = map(str, relation.types)
    if not (is_number(y_type) or y_type in ("UBIGINT", "UHUGEINT")):
        raise UsageError(f'column "{relation.columns[1]}" has no numbers to draw: it is {y_type}')
    if x_type.startswith(("TIMESTAMP", "DATE")):
        place = f"epoch({x})"
    elif is_number(x_type):
        place = f"CAST({x} AS DOUBLE)"
    else:
        place = "0.0"
    rows = relation.project(f"CAST({x} AS VARCHAR) AS name, {place} AS x, CAST({y} AS DOUBLE) AS y")
    found = rows.filter("name IS NOT NULL AND isfinite(x) AND isfinite(y)").limit(_MOST_POINTS).fetchall()
    if not found:
        yield "(no rows)"
    elif place == "0.0":
        yield from bars([(printable(name), value) for name, _, value in found], width)
    else:
        found.sort(key=lambda row: row[1])
        yield from line([(a, b) for _, a, b in found], (printable(found[0][0]), printable(found[-1][0])), width)


def bars(rows: Sequence[tuple[str, float]], width: int) -> Iterator[str]:
    """Yield a bar for each row.

    >>> for text in bars([("EWR", 2.0), ("JFK", 4.0), ("LGA", -1.0)], 20):
    ...     print(text)
    EWR ██████▌ 2
    JFK █████████████ 4
    LGA ███▎ -1
    """
    shown = rows[:_MOST_BARS]
    names = [name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…" for name, _ in shown]
    texts = [_number(value) for _, value in shown]
    widest = max(map(len, names))
    room = max(width - widest - max(map(len, texts)) - 2, 8)
    longest = max(abs(value) for _, value in shown) or 1.0
    for name, text, (_, value) in zip(names, texts, shown, strict=True):
        whole, eighths = divmod(round(abs(value) / longest * room * 8), 8)
        bar = "█" * whole + (_EIGHTHS[eighths] if eighths else "")
        yield f"{name:{widest}} {bar}{' ' if bar else ''}{text}"
    if len(rows) > len(shown):
        yield f"({len(rows) - len(shown):,} more rows)"


def line(
    points: Sequence[tuple[float, float]], ends: tuple[str, str], width: int, height: int = HEIGHT
) -> Iterator[str]:
    """Yield the lines of a line chart of points, which are in the order of their first number; `ends` are its labels."""
    low, high = min(y for _, y in points), max(y for _, y in points)
    first, last = points[0][0], points[-1][0]
    labels = {0: _number(high), height // 2: _number((low + high) / 2), height - 1: _number(low)}
    widest = max(map(len, labels.values()))
    columns = max(width - widest - 2, 8)
    across, down = columns * 2 - 1, height * 4 - 1
    cells = [[0] * columns for _ in range(height)]
    places = [
        (round((x - first) / (last - first or 1.0) * across), round((high - y) / (high - low or 1.0) * down))
        for x, y in points
    ]
    for a, b in pairwise(places):
        _draw(cells, a, b)
    if len(places) == 1:
        _draw(cells, places[0], places[0])
    for row, dots in enumerate(cells):
        text = "".join(chr(0x2800 + cell) if cell else " " for cell in dots).rstrip()
        yield f"{labels.get(row, ''):>{widest}} │{text}"
    yield f"{' ' * widest} └{'─' * columns}"
    gap = max(columns - len(ends[0]) - len(ends[1]), 1)
    yield f"{' ' * widest}  {ends[0]}{' ' * gap}{ends[1] if len(points) > 1 else ''}".rstrip()


def _draw(cells: list[list[int]], a: tuple[int, int], b: tuple[int, int]) -> None:
    """Set the dots of a straight line."""
    steps = max(abs(b[0] - a[0]), abs(b[1] - a[1]), 1)
    for step in range(steps + 1):
        x = round(a[0] + (b[0] - a[0]) * step / steps)
        y = round(a[1] + (b[1] - a[1]) * step / steps)
        cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]


def _number(value: float) -> str:
    """Return a number in few characters.

    >>> _number(12.0), _number(0.12345), _number(1234567.0), _number(2.5e9)
    ('12', '0.1235', '1.23 M', '2.5 G')
    """
    size = abs(value)
    for unit, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if size >= factor:
            return f"{value / factor:.3g} {unit}"
    if value == math.floor(value):
        return f"{value:,.0f}"
    return f"{value:.4g}"
