"""Durations and sizes read as Flink reads them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import sqlstream
from sqlstream.units import MILLISECOND, SECOND, parse_boolean, parse_bytes, parse_count, parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 s", 1_000_000),
        ("500ms", 500_000),
        ("2 min", 120_000_000),
        (" 1 Hour ", 3_600_000_000),
        ("1.5 d", 129_600_000_000),
        ("0", 0),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("128 MB", 128 << 20), ("64mb", 64 << 20), ("1 GiB", 1 << 30), ("10 b", 10), ("0", 0)]
)
def test_sizes(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "s", "-1 s", "1 fortnight", "1 s 2 ms"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text)


@pytest.mark.parametrize(("text", "length"), [("1000", SECOND), ("1.5", 1_500), (" 20 ", 20 * MILLISECOND), ("0", 0)])
def test_a_number_alone_counts_milliseconds(text: str, length: int) -> None:
    assert parse_duration(text) == length


@pytest.mark.parametrize("text", ["1", "1000", " 20 "])
def test_where_a_unit_is_needed_a_number_alone_is_refused(text: str) -> None:
    assert parse_bytes(text) == int(text)
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text, unit=None)
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text, unit=None)
    assert parse_duration("0", unit=None) == parse_bytes("0", unit=None) == 0


def test_booleans_and_counts() -> None:
    assert (parse_boolean("TRUE"), parse_boolean(" false"), parse_count("007")) == (True, False, 7)
    for text in ("yes", ""):
        with pytest.raises(ValueError, match="is not true or false"):
            parse_boolean(text)
    for text in ("0", "-1", "1.5", ""):
        with pytest.raises(ValueError, match="is not a whole number"):
            parse_count(text)


# What names of times and lengths of time end with, and where such a name is that of something else.
_TIMES = (
    "time",
    "now",
    "watermark",
    "timer",
    "delay",
    "lateness",
    "ttl",
    "timeout",
    "retention",
    "gap",
    "since",
    "began",
)
# What mappings are by.
_KEYS = re.compile(r"(?:dict|Mapping)\[(\w+|tuple\[[^]]*\]), ")
_OTHERS = {
    # Microseconds, or text.
    ("testing/stream.py", "now"),
    ("testing/stream.py", "time"),
    ("testing/stream.py", "times"),
    # A place in a list, by which there is a Duration, and a version.
    ("logical/plan/state_settings.py", "ttls"),
    ("storage/snapshot.py", "first_gap"),
    ("storage/joblog.py", "since"),
    # Plain data of which a digest is made: a Duration, or the SQL of one.
    ("logical/plan/settings.py", "gap"),
}


@pytest.mark.slow
def test_signatures_say_which_kind_of_time_they_take() -> None:
    """mypy refuses a bare int for a time where the signature says what kind it is: so none may say int."""
    package = Path(sqlstream.__file__).parent
    found = {
        (str(path.relative_to(package)), name)
        for path in package.rglob("*.py")
        for name, annotation in _annotated(ast.parse(path.read_text()))
        if name.rstrip("s").split("_")[-1] in _TIMES and "int" in re.findall(r"\w+", _KEYS.sub("", annotation))
    }
    assert sorted(found) == sorted(_OTHERS)


def _annotated(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the names of arguments, fields and functions, and what they are said to be."""
    for node in ast.walk(module):
        pairs: list[tuple[str, ast.expr | None]] = []
        if isinstance(node, ast.arg):
            pairs.append((node.arg, node.annotation))
        elif isinstance(node, ast.FunctionDef):
            pairs.append((node.name, node.returns))
        elif isinstance(node, ast.AnnAssign):
            pairs.append((ast.unparse(node.target).rpartition(".")[2], node.annotation))
        yield from ((name, ast.unparse(said)) for name, said in pairs if said is not None)
