"""Durations and sizes read as Flink reads them."""

from __future__ import annotations

import pytest

from sqlstream.units import parse_boolean, parse_bytes, parse_count, parse_duration


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


@pytest.mark.parametrize("text", ["", "1", "s", "-1 s", "1 fortnight", "1 s 2 ms"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text)


def test_booleans_and_counts() -> None:
    assert (parse_boolean("TRUE"), parse_boolean(" false"), parse_count("007")) == (True, False, 7)
    for text in ("yes", ""):
        with pytest.raises(ValueError, match="is not true or false"):
            parse_boolean(text)
    for text in ("0", "-1", "1.5", ""):
        with pytest.raises(ValueError, match="is not a whole number"):
            parse_count(text)
