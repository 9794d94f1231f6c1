"""Charts of results with two columns, made of characters: bars for names, a line for numbers and times."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count, pairwise

import duckdb

from sqlstream.duck.sql import quote_name
from sqlstream.errors import UsageError
from sqlstream.session.rendering import is_number, printable

HEIGHT = 15
# Nobody reads more bars, and more points would be closer than a dot.
_MOST_BARS, _MOST_POINTS = 50, 100_000
_LONGEST_NAME = 24
_EIGHTHS = " ▏▎▍▌▋▊▉█"
# The dots of a Braille character, by row and column.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def chart(relation: duckdb.DuckDBPyRelation, width: int) -> Iterator[str]:
    """Yield the lines of a chart of a relation's two columns, `width` characters wide. Rows with NULL are left out.

    Raises UsageError if the second column is not numeric.
    """
    x, y = map(quote_name, relation.columns)
    x_type, y_type = map(str, relation.types)
    if not (is_number(y_type) or y_type in ("UBIGINT", "UHUGEINT")):
        raise UsageError(f'column "{relation.columns[1]}" has no numbers to draw: it is {y_type}')
    if x_type.startswith(("TIMESTAMP", "DATE")):
        x_sql = f"epoch({x})"
    elif is_number(x_type):
        x_sql = f"CAST({x} AS DOUBLE)"
    else:
        x_sql = "0.0"
    rows = relation.project(f"CAST({x} AS VARCHAR) AS name, {x_sql} AS x, CAST({y} AS DOUBLE) AS y")
    points = rows.filter("name IS NOT NULL AND isfinite(x) AND isfinite(y)").limit(_MOST_POINTS).fetchall()
    axes = printable(relation.columns[0]), printable(relation.columns[1])
    if not points:
        yield "(no rows)"
    elif x_sql == "0.0":
        yield from bars([(printable(name), value) for name, _, value in points], axes, width)
    else:
        points.sort(key=lambda row: row[1])
        ends = printable(points[0][0]), printable(points[-1][0])
        yield from line([(a, b) for _, a, b in points], ends, axes, width)


def bars(rows: Sequence[tuple[str, float]], axes: tuple[str, str], width: int) -> Iterator[str]:
    """Yield the names of the two columns, then a bar for each row (name, value).

    >>> for text in bars([("EWR", 2.0), ("JFK", 4.0), ("LGA", -1.0)], ("origin", "n"), 23):
    ...     print(text)
    origin n
    EWR    ██████▌ 2
    JFK    █████████████ 4
    LGA    ███▎ -1
    """
    shown = rows[:_MOST_BARS]
    names = labels([name for name, _ in shown])
    texts = numbers([value for _, value in shown])
    title = axes[0] if len(axes[0]) <= _LONGEST_NAME else f"{axes[0][: _LONGEST_NAME - 1]}…"
    widest = max(len(title), *map(len, names))
    room = max(width - widest - max(map(len, texts)) - 2, 8)
    yield f"{title:{widest}} {axes[1]}"
    longest = max(abs(value) for _, value in shown) or 1.0
    for name, text, (_, value) in zip(names, texts, shown, strict=True):
        whole, eighths = divmod(round(abs(value) / longest * room * 8), 8)
        bar = "█" * whole + (_EIGHTHS[eighths] if eighths else "")
        yield f"{name:{widest}} {bar}{' ' if bar else ''}{text}"
    if len(rows) > len(shown):
        yield f"({len(rows) - len(shown):,} more rows)"


def line(
    points: Sequence[tuple[float, float]],
    ends: tuple[str, str],
    axes: tuple[str, str],
    width: int,
    height: int = HEIGHT,
) -> Iterator[str]:
    """Yield the lines of a line chart of (x, y) points in the order of x, with the names of its `axes`.

    `ends` are the labels of the first point and the last one.
    """
    low, high = min(y for _, y in points), max(y for _, y in points)
    first, last = points[0][0], points[-1][0]
    rows = 0, height // 2, height - 1
    ticks = dict(zip(rows, numbers([high, (low + high) / 2, low]), strict=True))
    widest = max(map(len, ticks.values()))
    columns = max(width - widest - 2, 8)
    across, down = columns * 2 - 1, height * 4 - 1
    cells = [[0] * columns for _ in range(height)]
    pixels = [
        (round((x - first) / (last - first or 1.0) * across), round((high - y) / (high - low or 1.0) * down))
        for x, y in points
    ]
    for a, b in pairwise(pixels):
        _draw(cells, a, b)
    if len(pixels) == 1:
        _draw(cells, pixels[0], pixels[0])
    yield f"{' ' * widest} {axes[1]}"
    for row, dots in enumerate(cells):
        text = "".join(chr(0x2800 + cell) if cell else " " for cell in dots).rstrip()
        yield f"{ticks.get(row, ''):>{widest}} │{text}"
    yield f"{' ' * widest} └{'─' * columns}"
    last_label = ends[1] if len(points) > 1 else ""
    yield f"{' ' * widest}  {_between(ends[0], axes[0], last_label, columns)}".rstrip()


def _draw(cells: list[list[int]], a: tuple[int, int], b: tuple[int, int]) -> None:
    """Set the dots of a straight line from `a` to `b`."""
    steps = max(abs(b[0] - a[0]), abs(b[1] - a[1]), 1)
    for step in range(steps + 1):
        x = round(a[0] + (b[0] - a[0]) * step / steps)
        y = round(a[1] + (b[1] - a[1]) * step / steps)
        cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]


def _between(first: str, middle: str, last: str, width: int) -> str:
    """Return three texts on a line: at its ends and between them, or the middle one last if there is no room for it.

    >>> _between("1", "n", "9", 9), _between("10:00:00", "hour", "11:00:00", 18)
    ('1   n   9', '10:00:00  11:00:00 (hour)')
    """
    room = width - len(first) - len(last)
    if room < len(middle) + 2:
        return f"{first}{' ' * max(room, 1)}{last} ({middle})"
    before = (room - len(middle)) // 2
    return f"{first}{' ' * before}{middle}{' ' * (room - len(middle) - before)}{last}"


def labels(names: Sequence[str]) -> list[str]:
    """Return names for people: long ones are cut as far as they stay different, and equal ones are numbered.

    >>> labels(["a", "a", "b"])
    ['a', 'a (2)', 'b']
    >>> labels(["the department of trade 1", "the department of trade 2"])
    ['the departme… of trade 1', 'the departme… of trade 2']
    """
    seen = Counter[str]()
    texts = []
    for name, short in zip(names, _shortened(names), strict=True):
        seen[name] += 1
        texts.append(short if seen[name] == 1 else f"{short} ({seen[name]})")
    return texts


def _shortened(names: Sequence[str]) -> list[str]:
    different = len(set(names))
    for length in count(_LONGEST_NAME, _LONGEST_NAME // 2):
        # Behind the mark is nothing, or the end of the name.
        for end in (0, (length - 1) // 2):
            head = length - 1 - end
            short_names = [n if len(n) <= length else f"{n[:head]}…{n[len(n) - end :]}" for n in names]
            if len(set(short_names)) == different:
                return short_names
    raise AssertionError


def numbers(values: Sequence[float]) -> list[str]:
    """Return numbers in few characters, but in enough that different numbers look different.

    >>> numbers([1234567.0, 1234000.0, 5.0]), numbers([1234567.0, 2345678.0])
    (['1.235 M', '1.234 M', '5'], ['1.23 M', '2.35 M'])
    """
    texts: list[str] = []
    for digits in range(3, 18):
        texts = [_number(value, digits) for value in values]
        if len(set(texts)) == len(set(values)):
            break
    return texts


def _number(value: float, digits: int = 3) -> str:
    """Return a number in few characters.

    >>> _number(12.0), _number(0.12345), _number(1234567.0), _number(2.5e9)
    ('12', '0.1235', '1.23 M', '2.5 G')
    """
    size = abs(value)
    for unit, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if size >= factor:
            return f"{value / factor:.{digits}g} {unit}"
    if value == math.floor(value):
        return f"{value:,.0f}"
    return f"{value:.{digits + 1}g}"
